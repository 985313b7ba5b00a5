# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: layers of experts, fp32, two threads. These are compared:

    A model whose tokens choose 2 of 8 experts, a dense one with as many active FLOPs, and PyTorch
    (a loop over the experts, and torch.compile of it).
    8 experts and 64 experts, with as many tokens.
    Expert degree 2, a thread a rank, and degree 1 with two threads.

The learning rate is so low that the routing stays as it is at random weights. With a useful rate,
and no loss that balances experts, one rank has twice the other's rows within a few steps."""
import json
import shutil
import statistics
import time

import common
import report
import torch_step
import train_step

CHOSEN = 2
EXPERTS = dict(architecture="mixtral", hidden_size=512, num_hidden_layers=8, num_attention_heads=8,
               num_key_value_heads=8, intermediate_size=704, tie_word_embeddings=False,
               num_local_experts=8, num_experts_per_tok=CHOSEN, length=2048, batch=1)
TINY = train_step.TINY | dict(intermediate_size=48)
OF_PARAMETERS = ("norm", "norm_sum", "clip", "update")  # rows of a profile
OF_DENSE, OF_TORCH, OF_ONE_RANK, OF_FEW = 0.88, 1.3, 0.85, 1.1


def without_experts(shape):
    """As many FLOPs a token, less those of routers."""
    dense = {key: value for key, value in shape.items() if "experts" not in key}
    return dense | dict(architecture="llama", intermediate_size=CHOSEN * shape["intermediate_size"])


def sides_of(bench, runs, alike=True):
    sides = train_step.Sides(bench, runs, alike)
    sides.take_turns()
    return sides


def against_others(bench, shape, steps):
    report.title(f"{CHOSEN} of {shape['num_local_experts']} experts against a dense model: "
                 f"{shape['hidden_size']} wide, {shape['batch']} x {shape['length']} tokens")
    keys = train_step.step_keys(shape, bench.folder, steps)
    dense = train_step.step_keys(without_experts(shape), bench.folder, steps)
    sides = sides_of(bench, {"experts": lambda: train_step.run_echelon(bench, keys),
                             "dense": lambda: train_step.run_echelon(bench, dense)}, alike=False)
    sides.show(shape["batch"] * shape["length"], "experts")
    bench.verdict("experts: tokens/s over a dense model's",
                  sides.median("dense") / sides.median("experts"), OF_DENSE)
    runs = {"Echelon": lambda: train_step.run_echelon(bench, keys)}
    for variant in ("eager", "compile"):
        runs[f"PyTorch {variant}"] = lambda variant=variant: torch_step.run(
            shape, variant, 1, train_step.THREADS, shape["batch"], 1, steps, bench.folder)
    sides = sides_of(bench, runs)
    sides.show(shape["batch"] * shape["length"], "Echelon")
    best = min(sides.median(side) for side in runs if side != "Echelon")
    bench.verdict(
        "experts: PyTorch's time over Echelon's", best / sides.median("Echelon"), OF_TORCH
    )


def forward_and_backward(bench, shape, steps):
    """Seconds a step, by --profile: an update, and a norm, is of all parameters, chosen or not."""
    run = bench.folder / f"run-{time.monotonic_ns()}"
    common.train_echelon(bench.echelon, 1, train_step.THREADS,
                         [*train_step.step_keys(shape, bench.folder, steps), "parallel.comm=local",
                          "--profile"], run, bench.folder)
    rows = map(json.loads, (run / "step_profile.jsonl").read_text().splitlines()[1:])
    seen = [row for row in rows if row["group"] == "compute" and not row["waits"]]
    shutil.rmtree(run)
    return sum(row["seconds"] for row in seen if row["row"] not in OF_PARAMETERS)


def of_more_experts(bench, shape, steps):
    """256 tokens an expert, where there are 64."""
    numbers = shape["num_local_experts"], 8 * shape["num_local_experts"]
    shape = shape | dict(num_hidden_layers=1, batch=4 * shape["batch"])
    report.title(f"{numbers[0]} and {numbers[1]} experts of one layer, {shape['batch']} x "
                 f"{shape['length']} tokens")
    took = {number: [] for number in numbers}
    for _ in range(bench.rounds):
        for number in numbers:
            of_them = shape | dict(num_local_experts=number)
            took[number].append(forward_and_backward(bench, of_them, steps))
    few, many = (statistics.median(took[number]) for number in numbers)
    report.table(("experts", "forward and backward, ms of all profiled steps"),
                 [(number, f"{1e3 * statistics.median(took[number]):.0f}") for number in numbers])
    bench.verdict(
        f"forward and backward of {numbers[1]} experts over those of {numbers[0]}",
        many / few,
        OF_FEW,
        least=False,
    )


def over_ranks(bench, shape, steps):
    report.title("Expert degree 2, a thread a rank, against one rank of two threads")
    keys = [*train_step.step_keys(shape, bench.folder, steps, micro_batches=2),
            "optimizer.learning_rate=1e-6"]
    sides = sides_of(bench, {
        "one rank": lambda: train_step.run_echelon(bench, keys),
        "degree 2": lambda: train_step.run_echelon(
            bench, [*keys, "parallel.data=2", "parallel.expert=2"], ranks=2, threads=1)})
    sides.show(2 * shape["batch"] * shape["length"], "one rank")
    bench.verdict("expert degree 2: tokens/s over one rank's",
                  sides.median("one rank") / sides.median("degree 2"), OF_ONE_RANK)


def run(bench):
    shape, steps = EXPERTS | TINY if bench.quick else EXPERTS, bench.warmup + bench.steps
    common.write_tokens(shape, bench.folder)
    against_others(bench, shape, steps)
    over_ranks(bench, shape, steps)
    of_more_experts(bench, shape, steps)
