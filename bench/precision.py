# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: one training step in bf16 on two threads, against Echelon's own in fp32 and
against PyTorch's under bf16 autocast (the better of eager and compiled), in turns.

The processor must multiply pairs of bf16 (AVX512-BF16); without that the figures are printed, not
judged. """
import pathlib

import common
import report
import torch_step
import train_step

# Of each shape: fp32's time over bf16's, and PyTorch's over Echelon's, both in bf16.
WANTED = {"gpt2-124m": (1.8, 1.15), "llama-8x512-2k": (1.65, 1.15), "gpt2-6x384": (None, 1.15)}


def multiplies_pairs():
    return "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text()


def run(bench):
    for name in bench.shapes_of(WANTED):
        shape, steps = train_step.shape_of(bench, name), bench.warmup + bench.steps
        report.title(
            f"A training step in bf16: {name}, batch {shape['batch']} x {shape['length']}, "
            f"vocabulary {common.vocabulary(shape)}, {train_step.THREADS} threads"
        )
        common.write_tokens(shape, bench.folder)
        keys = train_step.step_keys(shape, bench.folder, steps)
        runs = {f"Echelon {compute}": lambda compute=compute: train_step.run_echelon(
            bench, [*keys, f"precision.compute={compute}"]) for compute in ("bf16", "fp32")}
        for variant in train_step.choose(bench, shape, "bf16"):
            runs[f"PyTorch {variant}"] = lambda variant=variant: torch_step.run(
                shape,
                variant,
                1,
                train_step.THREADS,
                shape["batch"],
                1,
                steps,
                bench.folder,
                "bf16",
            )
        sides = train_step.Sides(bench, runs)
        sides.take_turns()
        sides.show(shape["batch"] * shape["length"], "Echelon bf16")
        judge(bench, name, sides)


def judge(bench, name, sides):
    if not multiplies_pairs():
        bench.skip(f"targets of {name}", "this processor does not multiply pairs of bf16")
        return
    own, against_torch = WANTED.get(name, (None, 1))
    bf16 = sides.median("Echelon bf16")
    if own:
        bench.verdict(f"{name}: fp32's time over bf16's", sides.median("Echelon fp32") / bf16, own)
    best = min(sides.median(side) for side in sides.runs if side.startswith("PyTorch"))
    bench.verdict(f"{name}: PyTorch's time over Echelon's, both bf16", best / bf16, against_torch)
