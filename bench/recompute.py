# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: what recomputation costs: one training step on two threads with
memory.recompute none, selective and full, in fp32 and in bf16, in turns."""
import common
import report
import train_step

CHOICES = ("none", "selective", "full")
# Most of `none`'s time, of full recomputation; of selective, of any shape.
WANTED = {"gpt2-124m": 1.2, "llama-8x512-2k": 1.3}
SELECTIVE = 1.05


def run(bench):
    for name in bench.shapes_of(WANTED):
        for compute in ("fp32", "bf16"):
            measure(bench, name, compute)


def measure(bench, name, compute):
    shape, steps = train_step.shape_of(bench, name), bench.warmup + bench.steps
    report.title(f"Recomputation in {compute}: {name}, batch {shape['batch']} x {shape['length']}, "
                 f"vocabulary {common.vocabulary(shape)}, {train_step.THREADS} threads")
    common.write_tokens(shape, bench.folder)
    keys = train_step.step_keys(shape, bench.folder, steps) + [f"precision.compute={compute}"]
    sides = train_step.Sides(bench, {choice: lambda choice=choice: train_step.run_echelon(
        bench, [*keys, f"memory.recompute={choice}"]) for choice in CHOICES})
    sides.take_turns()
    sides.show(shape["batch"] * shape["length"], "none")
    none = sides.median("none")
    bench.verdict(
        f"{name}, {compute}: full over none",
        sides.median("full") / none,
        WANTED.get(name, 1.3),
        least=False,
    )
    bench.verdict(f"{name}, {compute}: selective over none", sides.median("selective") / none,
                  SELECTIVE, least=False)
