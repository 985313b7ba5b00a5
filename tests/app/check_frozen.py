# SPDX-License-Identifier: Apache-2.0
"""Frozen parameters (optimizer.rates = PATTERN=0), against PyTorch's requires_grad = False.

    check_frozen.py ECHELON

AdamW in fp64 with gradient clipping, whose norm counts the trained parameters alone. The data is a
single sample. Weights after the last step are compared; frozen ones keep their bits.

Exits 77 where a package is missing.
"""
import fnmatch
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True

from one_sample import GPT2, STEPS, loss_of, make_model, prepare, torch, train, transformers

RATE, CLIP = 0.01, 0.5
# Patterns, the last of which counts; and layouts.
CASES = [("*wte*=0 *wpe*=0 *.0.*=0 *.1.*=0", ["parallel.pipeline=2"]),
         ("*=0 *ln_*=1 *attn.c_attn.bias=0.5", []),
         ("*mlp*=0 *.bias=1 *.1.*=0", ["parallel.tensor=2"]),
         ("*.weight=0", ["parallel.data=1", "memory.recompute=full"])]


def factor_of(name, rates):
    factor = 1.0
    for word in rates.split():
        pattern, _, number = word.rpartition("=")
        if fnmatch.fnmatchcase(name, pattern):
            factor = float(number)
    return factor


def train_theirs(start, rates):
    """The weights after STEPS steps."""
    model = transformers.GPT2LMHeadModel(start.config).double()
    model.load_state_dict(start.state_dict())
    groups = []
    for name, x in model.named_parameters():
        x.requires_grad = factor_of(name, rates) > 0
        if x.requires_grad:
            groups.append({"params": [x], "lr": RATE * factor_of(name, rates)})
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return {name: x.detach() for name, x in model.named_parameters()}


def main():
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root)
        start = make_model(folder, GPT2)
        prepare(sys.argv[1], folder, {"name": "adamw", "learning_rate": RATE, "clip_norm": CLIP},
                {})
        before = {name: x.detach().double() for name, x in start.named_parameters()}
        for i, (rates, words) in enumerate(CASES):
            ranks = 2 if any(word.endswith("=2") for word in words) else 1
            ours = train(sys.argv[1], folder, str(i), ranks, f"optimizer.rates={rates}", *words)
            theirs = train_theirs(start, rates)
            assert set(ours) == set(theirs), set(ours) ^ set(theirs)
            moved = 0
            for name, x in theirs.items():
                error = float((ours[name] - x).abs().max())
                assert error < 1e-10, f"{rates}: {name} differs by {error:.1e}"
                if factor_of(name, rates) > 0:
                    moved += not torch.equal(ours[name], before[name])
                else:
                    assert torch.equal(ours[name], before[name]), f"{rates}: {name} moved"
            assert moved > 3, rates


main()
