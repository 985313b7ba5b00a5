# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: two data-parallel ranks of one thread, over MPI, against one rank of two
threads, and against PyTorch's DistributedDataParallel of two processes of one thread, over gloo.

A step is four micro-batches a rank. Ranks have half of a micro-batch's samples each, so all sides
do the same work. PyTorch adds gradients up in the last micro-batch only (no_sync), while its
backward runs, and keeps them in the buckets that are sent (gradient_as_bucket_view). """
import common
import report
import torch_step
import train_step

SHAPE, MICRO_BATCHES, RANKS = "gpt2-6x384", 4, 2
OVER_ONE_RANK, OVER_TORCH = 0.95, 1.3


def torch_run(bench, shape, variant, steps):
    return torch_step.run(shape, variant, RANKS, 1, shape["batch"] // RANKS, MICRO_BATCHES, steps,
                          bench.folder)


def run(bench):
    shape = train_step.shape_of(bench, SHAPE)
    tokens = MICRO_BATCHES * shape["batch"] * shape["length"]
    steps = bench.warmup + bench.steps
    report.title(f"Two data-parallel ranks of one thread: {SHAPE}, {MICRO_BATCHES} micro-batches, "
                 f"{tokens:,} tokens a step")
    common.write_tokens(shape, bench.folder)
    keys = train_step.step_keys(shape, bench.folder, steps, MICRO_BATCHES)
    half = train_step.step_keys(shape | dict(batch=shape["batch"] // RANKS), bench.folder, steps,
                                RANKS * MICRO_BATCHES)
    sides = train_step.Sides(bench, {
        "Echelon, 2 ranks": lambda: train_step.run_echelon(bench, half, RANKS, 1),
        "Echelon, 1 rank": lambda: train_step.run_echelon(bench, keys),
        "DDP, eager": lambda: torch_run(bench, shape, "eager", steps),
        "DDP, compile": lambda: torch_run(bench, shape, "compile", steps)})
    sides.take_turns()
    sides.show(tokens, "Echelon, 2 ranks")
    ours = sides.median("Echelon, 2 ranks")
    bench.verdict("2 ranks of one thread: throughput over 1 rank of two",
                  sides.median("Echelon, 1 rank") / ours, OVER_ONE_RANK)
    bench.verdict("2 ranks: DistributedDataParallel's time over Echelon's",
                  min(sides.median("DDP, eager"), sides.median("DDP, compile")) / ours, OVER_TORCH)
