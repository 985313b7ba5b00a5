# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: a training step (forward, backward, SGD with momentum; fp32) of VGG-16 and
ResNet-18 on images of 32 x 32, two threads, Echelon's against PyTorch's, in turns on the same
cores.

PyTorch's models are torchvision's with the input and output sizes of such images: ResNet's stem is
a 3 x 3 convolution without a pool, VGG's classifier reads the one pixel that is left. They train
with channels last, eager and compiled; images are in memory before the first step. Echelon reads
its images from a packed file while it trains. """
import importlib.util
import json
import time

import common
import report
import train_step
from common import nn, numpy, torch

CLASSES, SIDE, BATCH, IMAGES = 10, 32, 64, 512
RATE, MOMENTUM, DECAY = 0.01, 0.9, 5e-4
SHAPES = {"vgg-16": dict(architecture="vgg", weight_layers=16),
          "resnet-18": dict(architecture="resnet", weight_layers=18)}
COMPILED = {"eager": False, "compile": True}
WANTED = 1.0  # PyTorch's time over Echelon's

# ---- Echelon ----


def write_images(bench):
    """Random pixels in CIFAR-10's format, packed by the program. Returns the file's prefix."""
    random = numpy.random.default_rng(1)
    records = random.integers(256, size=(IMAGES, 1 + 3 * SIDE * SIDE), dtype=numpy.uint8)
    records[:, 0] %= CLASSES
    records.tofile(bench.folder / "data_batch_1.bin")
    common.run_together([([bench.echelon, "data", bench.folder / "data_batch_1.bin",
                           bench.folder / "pixels", "--images"], {})], timed=False)
    return bench.folder / "pixels.images"


def keys_of(shape, images, batch, steps):
    """Words of the command line."""
    model = shape | dict(image_height=SIDE, image_width=SIDE, num_classes=CLASSES)
    return [*(f"model.{key}={value}" for key, value in model.items()), f"data.train={images}",
            f"training.global_batch_size={batch}", f"training.micro_batch_size={batch}",
            f"training.steps={steps}", "training.check_every=0", "checkpoint.every=1000000",
            "optimizer.name=sgd", f"optimizer.learning_rate={RATE}",
            f"optimizer.momentum={MOMENTUM}", f"optimizer.weight_decay={DECAY}",
            "optimizer.clip_norm=0", "optimizer.schedule=constant"]


# ---- PyTorch ----


def torch_model(shape):
    from torchvision import models
    if shape["architecture"] == "resnet":
        model = models.resnet18(num_classes=CLASSES)
        model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    else:
        model = models.vgg16(num_classes=CLASSES)
        model.avgpool = nn.Identity()
        model.classifier[0] = nn.Linear(512, 4096)
    return model.train().to(memory_format=torch.channels_last)


def optimizer_of(model):
    """Gains and biases do not decay, as in Echelon."""
    groups = [dict(params=[p for p in model.parameters() if (p.dim() > 1) == decays],
                   weight_decay=DECAY * decays) for decays in (True, False)]
    return torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, fused=True)


def torch_rank(job):
    """Prints {"seconds" of every step, "losses", "parameters"}."""
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    model = torch_model(job["shape"])
    optimizer = optimizer_of(model)
    forward = torch.compile(model) if job["compiled"] else model
    pixels = torch.randn(IMAGES, 3, SIDE, SIDE).to(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (IMAGES,))
    seconds, losses = [], []
    for step in range(job["steps"]):
        first = step * job["batch"] % IMAGES
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        part = slice(first, first + job["batch"])
        loss = nn.functional.cross_entropy(forward(pixels[part]), labels[part])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(json.dumps(dict(seconds=seconds, losses=losses,
                          parameters=common.count_parameters(model))), flush=True)


# ---- the comparison ----


def sides_of(bench, shape, images, batch):
    steps, threads = bench.warmup + bench.steps, train_step.THREADS
    keys = keys_of(shape, images, batch, steps)
    runs = {"Echelon": lambda: train_step.run_echelon(bench, keys)}
    for name, compiled in COMPILED.items():
        if compiled and bench.quick:  # it takes minutes
            continue
        job = dict(shape=shape, compiled=compiled, batch=batch, steps=steps, threads=threads,
                   variables=common.MALLOC)
        runs[f"PyTorch {name}"] = lambda job=job: common.run_torch(
            __file__, 1, threads, job, bench.folder)
    return train_step.Sides(bench, runs, alike=False)  # of random pixels, losses differ


def show(sides, batch):
    first = sides.median("Echelon")
    rows = [(name, common.spread(seconds), f"{batch / sides.median(name):,.1f}",
             f"{sides.median(name) / first:.3f}") for name, seconds in sides.seconds.items()]
    report.table(("", "ms a step [quartiles]", "images/s", "time over Echelon's"), rows)


def run(bench):
    if not importlib.util.find_spec("torchvision"):
        bench.skip("convnets", "torchvision is missing")
        return
    images, batch = write_images(bench), 2 if bench.quick else BATCH
    for name, shape in SHAPES.items():
        report.title(f"Convolutional networks: {name}, batch {batch} of {SIDE} x {SIDE}, "
                     f"{train_step.THREADS} threads")
        sides = sides_of(bench, shape, images, batch)
        sides.take_turns()
        assert len(set(sides.parameters.values())) == 1, f"different models: {sides.parameters}"
        show(sides, batch)
        best = min(sides.median(side) for side in sides.runs if side != "Echelon")
        bench.verdict(f"{name}: PyTorch's time over Echelon's", best / sides.median("Echelon"),
                      WANTED)


if __name__ == "__main__":
    torch_rank(json.loads(common.parser(__doc__).parse_args().rank))
