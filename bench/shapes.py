# SPDX-License-Identifier: Apache-2.0
"""examples/resnet18.yaml in PyTorch: the same network, images, augmentation, optimizer and learning
rates, with PyTorch's random numbers.

    python examples/make_shapes.py shapes
    python bench/shapes.py shapes

prints the validation loss and accuracy after each 100 steps, for docs/results.md.
"""
import argparse
import math
import pathlib
import time

import numpy
import torch
from torch import nn
from torchvision.models.resnet import BasicBlock

CHANNELS, CLASSES, SIDE, PADDING = 16, 10, 32, 4
STEPS, WARMUP, BATCH, RATE, MOMENTUM, DECAY, CLIP = 800, 50, 64, 0.1, 0.9, 5e-4, 1.0


class ResNet18(nn.Module):
    """torchvision's, whose first convolution has 3 x 3 pixels and a quarter of the channels."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS),
                  nn.ReLU()]
        inputs = CHANNELS
        for stage in range(4):
            channels, stride = CHANNELS << stage, 1 if stage == 0 else 2
            shortcut = None if stride == 1 else nn.Sequential(
                nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
            layers += [BasicBlock(inputs, channels, stride, shortcut),
                       BasicBlock(channels, channels)]
            inputs = channels
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                    nn.Linear(inputs, CLASSES))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        return self.layers(x)


def read(path):
    """Pixels from 0 to 1 and labels of a file in CIFAR-10's format."""
    records = numpy.fromfile(path, numpy.uint8).reshape(-1, 1 + 3 * SIDE * SIDE)
    pixels = torch.from_numpy(records[:, 1:].copy()).reshape(-1, 3, SIDE, SIDE) / 255
    return pixels, torch.from_numpy(records[:, 0].astype(numpy.int64))


def augment(pixels):
    """Shifts each image by up to PADDING pixels, with black beside it, and mirrors half of them."""
    padded = nn.functional.pad(pixels, [PADDING] * 4)
    out = torch.empty_like(pixels)
    for i in range(len(pixels)):
        down, right = torch.randint(2 * PADDING + 1, (2,)).tolist()
        image = padded[i, :, down:down + SIDE, right:right + SIDE]
        out[i] = image.flip(2) if torch.rand(()) < 0.5 else image
    return out


def rate_of(step):
    """Of step 1, 2, ...: linear, then half a cosine to 0."""
    if step <= WARMUP:
        return RATE * step / WARMUP
    return RATE * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


def validate(model, pixels, labels):
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(part) for part in pixels.split(250)])
    model.train()
    hits = (logits.argmax(1) == labels).float().mean().item()
    return nn.functional.cross_entropy(logits, labels).item(), 100 * hits


def train(folder, seed):
    torch.manual_seed(seed)
    pixels, labels = read(folder / "data_batch_1.bin")
    others, their_labels = read(folder / "test_batch.bin")
    mean, deviation = pixels.mean((0, 2, 3), True), pixels.std((0, 2, 3), keepdim=True)
    others = (others - mean) / deviation
    model = ResNet18()
    decays = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.SGD([dict(params=decays, weight_decay=DECAY), dict(params=rest)],
                                lr=RATE, momentum=MOMENTUM)
    order = torch.empty(0, dtype=torch.int64)
    start = time.perf_counter()
    for step in range(1, STEPS + 1):
        if len(order) < BATCH:
            order = torch.cat([order, torch.randperm(len(pixels))])
        own, order = order[:BATCH], order[BATCH:]
        for group in optimizer.param_groups:
            group["lr"] = rate_of(step)
        optimizer.zero_grad()
        seen = (augment(pixels[own]) - mean) / deviation
        nn.functional.cross_entropy(model(seen), labels[own]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if step % 100 == 0:
            loss, accuracy = validate(model, others, their_labels)
            print(f"step {step}: validation loss {loss:.3f}, accuracy {accuracy:.1f} %, "
                  f"{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    train(options.folder, options.seed)
