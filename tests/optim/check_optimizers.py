# SPDX-License-Identifier: Apache-2.0
"""Optimizers on recorded gradients, against PyTorch, in fp64.

    check_optimizers.py PRINT_UPDATES

Weights after each of some steps; gradients are drawn, of different sizes by row and column. Exits 77 where torch is
missing.
"""
import subprocess
import sys

try:
    import torch
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

STEPS = 12
SHAPES = [(5, 9), (16, 6), (12,)]


def ours(optimizer, rate, weights, gradients, *words):
    rows, columns = weights.shape if weights.dim() == 2 else (0, weights.numel())
    numbers = torch.cat([weights.flatten(), *(g.flatten() for g in gradients)])
    done = subprocess.run([sys.argv[1], optimizer, str(rate), str(rows), str(columns),
                           str(len(gradients)), *words], capture_output=True, text=True,
                          check=True, input="\n".join(map(repr, numbers.tolist())))
    printed = torch.tensor([float(line) for line in done.stdout.split()], dtype=torch.float64)
    return printed.view(len(gradients), *weights.shape)


def theirs(make, weights, gradients, set_rate=None):
    parameter = torch.nn.Parameter(weights.clone())
    optimizer = make([parameter])
    after = []
    for step, gradient in enumerate(gradients):
        if set_rate:
            optimizer.param_groups[0]["lr"] = set_rate(step + 1)
        parameter.grad = gradient.clone()
        optimizer.step()
        after.append(parameter.detach().clone())
    return torch.stack(after)


def record(shape, seed):
    torch.manual_seed(seed)
    weights = torch.randn(shape, dtype=torch.float64)
    scale = torch.exp(torch.randn(shape[-1], dtype=torch.float64))
    if len(shape) == 2:
        scale = scale * torch.exp(2 * torch.randn(shape[0], 1, dtype=torch.float64))
    return weights, [torch.randn(shape, dtype=torch.float64) * scale for _ in range(STEPS)]


def check(what, got, wanted, tolerance=1e-11):
    error = ((got - wanted).abs().max() / wanted.abs().max()).item()
    print(f"{what}: {error:.1e}")
    if not error <= tolerance:
        sys.exit(f"{what}: {error} apart from PyTorch's")


def adafactor(weights, gradients, rate, words, **more):
    # PyTorch's eps1 is added to nothing: it bounds, from below, what is divided by.
    return (ours("adafactor", rate, weights, gradients, *words),
            theirs(lambda p: torch.optim.Adafactor(p, lr=rate, eps=(1e-30, 1e-3), **more),
                   weights, gradients))


for seed, shape in enumerate(SHAPES):
    weights, gradients = record(shape, seed)
    # rho_t = min(learning rate, 1 / sqrt(t)) both below and above 1 / sqrt(t)
    for rate in 1e-2, 0.5:
        check(f"adafactor {shape} at most {rate}",
              *adafactor(weights, gradients, rate, ["optimizer.schedule=rsqrt"]))
    # Decay is of matrices alone, by the rate of the curve: the same while that is the highest one.
    if len(shape) == 2:
        check(f"adafactor {shape} with decay",
              *adafactor(weights, gradients, 1e-2,
                         ["optimizer.schedule=rsqrt", "optimizer.weight_decay=0.1"],
                         weight_decay=0.1))
