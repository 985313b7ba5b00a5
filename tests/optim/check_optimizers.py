# SPDX-License-Identifier: Apache-2.0
"""Optimizers on recorded gradients, against PyTorch, in fp64.

    check_optimizers.py PRINT_UPDATES

Weights after each of some steps; gradients are drawn, of different sizes by row and column. Exits
77 where torch is missing. """
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


def adafactor(weights, gradients, rate, words):
    # PyTorch's eps1 is added to nothing: it bounds, from below, what is divided by.
    return (ours("adafactor", rate, weights, gradients, *words),
            theirs(lambda p: torch.optim.Adafactor(p, lr=rate, eps=(1e-30, 1e-3)),
                   weights, gradients))


def check_transformers(shape, weights, gradients):
    """All options of transformers' Adafactor that go together, by the same names. Decay is of
    matrices alone."""
    try:
        from transformers.optimization import Adafactor
    except ImportError as error:
        print("skipped, transformers' Adafactor:", error)
        return
    for scale in True, False:
        for relative, warmup, beta1 in ((True, False, None), (True, True, 0.9),
                                        (False, False, 0.9)):
            decay = 0.0 if len(shape) == 1 else 0.1
            words = [f"optimizer.{key}={str(value).lower()}" for key, value in
                     (("scale_parameter", scale), ("relative_step", relative),
                      ("warmup_init", warmup), ("momentum", beta1 or 0), ("weight_decay", decay),
                      ("schedule", "constant"))]
            check(f"transformers' adafactor {shape}, {' '.join(words[:4])}",
                  ours("adafactor", 0.03, weights, gradients, *words),
                  theirs(lambda p: Adafactor(p, lr=None if relative else 0.03, beta1=beta1,
                                             scale_parameter=scale, relative_step=relative,
                                             warmup_init=warmup, weight_decay=decay),
                         weights, gradients))


def exact_newton_schulz(matrix, coefficients, steps, eps):
    """What torch.optim.Muon does in bf16, in fp64."""
    a, b, c = coefficients
    x = (matrix.T if matrix.size(0) > matrix.size(1) else matrix) / (matrix.norm() + eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.size(0) > matrix.size(1) else x


def muon(weights, gradients, rate, eps, momentum, nesterov, adjust, decay):
    words = [f"optimizer.{key}={value}" for key, value in
             (("schedule", "constant"), ("eps", eps), ("momentum", momentum),
              ("nesterov", str(nesterov).lower()), ("adjust_rate", adjust),
              ("weight_decay", decay))]
    return (ours("muon", rate, weights, gradients, *words),
            theirs(lambda p: torch.optim.Muon(p, lr=rate, eps=eps, momentum=momentum,
                                              nesterov=nesterov, adjust_lr_fn=adjust,
                                              weight_decay=decay), weights, gradients))


def check_muon(shape, weights, gradients):
    import torch.optim._muon as module
    theirs_in_bf16 = module._zeropower_via_newtonschulz
    for momentum, nesterov, adjust, decay in ((0.95, True, "original", 0.1),
                                              (0.8, False, "match_rms_adamw", 0)):
        what = f"muon {shape}, {adjust}"
        options = weights, gradients, 0.02, 1e-30, momentum, nesterov, adjust, decay
        module._zeropower_via_newtonschulz = exact_newton_schulz
        check(f"{what}, in fp64", *muon(*options))
        module._zeropower_via_newtonschulz = theirs_in_bf16
        got, wanted = muon(*options)
        check(f"{what}, moves beside those in bf16", got - weights, wanted - weights, 0.05)


for seed, shape in enumerate(SHAPES):
    weights, gradients = record(shape, seed)
    # rho_t = min(learning rate, 1 / sqrt(t)) both below and above 1 / sqrt(t)
    for rate in 1e-2, 0.5:
        check(f"adafactor {shape} at most {rate}",
              *adafactor(weights, gradients, rate, ["optimizer.schedule=rsqrt"]))
    check_transformers(shape, weights, gradients)
    if len(shape) == 2 and hasattr(torch.optim, "Muon"):
        check_muon(shape, weights, gradients)
    if len(shape) == 1:
        words = ["optimizer.schedule=constant", "optimizer.momentum=0.95",
                 "optimizer.beta2=0.98"]
        check("muon, a vector by AdamW", ours("muon", 0.02, weights, gradients, *words),
              theirs(lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.9, 0.98), weight_decay=0),
                     weights, gradients))
