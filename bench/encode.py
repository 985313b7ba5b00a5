# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: what codes of kept values cost: one training step on two threads with
memory.encode none and each code, in fp32, in turns. GPT-2 with ReLU has both kinds of codes."""
import common
import report
import train_step

CHOICES = ("none", "lossless", "fp16", "fp10", "fp8")
# Most of `none`'s time (the overhead of Jain et al. 2018 is 4% on average, 7% at most).
WANTED = {"lossless": 1.05, "fp16": 1.08, "fp10": 1.08, "fp8": 1.08}


def run(bench):
    for name in bench.shapes_of({"gpt2-124m": 1, "gpt2-6x384": 1}):
        measure(bench, name)


def measure(bench, name):
    shape, steps = train_step.shape_of(bench, name), bench.warmup + bench.steps
    report.title(f"Codes of kept values: {name} with ReLU, batch {shape['batch']} x "
                 f"{shape['length']}, {train_step.THREADS} threads")
    common.write_tokens(shape, bench.folder)
    keys = train_step.step_keys(shape, bench.folder, steps) + ["model.hidden_act=relu"]
    sides = train_step.Sides(bench, {choice: lambda choice=choice: train_step.run_echelon(
        bench, [*keys, f"memory.encode={choice}"]) for choice in CHOICES})
    sides.take_turns()
    sides.show(shape["batch"] * shape["length"], "none")
    none = sides.median("none")
    for choice, most in WANTED.items():
        bench.verdict(f"{name}: {choice} over none", sides.median(choice) / none, most,
                      least=False)
