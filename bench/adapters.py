# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: a training step of adapters (LoRA, rank 8, on every matrix of a layer) beside
one of the whole model, in turns, on two threads."""
import common
import report
import train_step

RANK = 8
MOST = 0.75  # of a step of the whole model


def run(bench):
    for name in bench.shapes_of(("gpt2-124m",)):
        measure(bench, name)


def measure(bench, name):
    shape, steps = train_step.shape_of(bench, name), bench.warmup + bench.steps
    report.title(f"Adapters of rank {RANK}: {name}, batch {shape['batch']} x {shape['length']}, "
                 f"vocabulary {common.vocabulary(shape)}, {train_step.THREADS} threads")
    common.write_tokens(shape, bench.folder)
    keys = train_step.step_keys(shape, bench.folder, steps)
    sides = train_step.Sides(bench, {
        "whole model": lambda: train_step.run_echelon(bench, keys),
        "adapters": lambda: train_step.run_echelon(bench, [*keys, f"lora.rank={RANK}"]),
    }, alike=False)
    sides.take_turns()
    sides.show(shape["batch"] * shape["length"], "whole model")
    bench.verdict(f"{name}: adapters over whole model",
                  sides.median("adapters") / sides.median("whole model"), MOST, least=False)
