#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of Korthikanti et al. 2022 (arXiv:2205.05198), planned and simulated by `echelon plan`.

    korthikanti.py ECHELON

Table 5: four GPT models on A100, with full recomputation, and with sequence parallelism and
selective recomputation. One factor, step.factor of a100_2022.yaml, is fitted to all eight times.

Table 4: the time of one layer of 22 billion parameters, as a share of that without recomputation
and sequence parallelism.

Figure 1: bytes of weights and activations. The paper's formulas give its numbers, and ours follow
from them by what our kernels keep or leave out.
"""
import math
import sys

sys.dont_write_bytecode = True
from planned import FULL, TOKENS, Planner, finish, grid  # pylint: disable=wrong-import-position

MOST, MOST_GAIN, SPREAD, MOST_LAYER = 0.06, 0.03, 0.06, 0.04
# billions of parameters, heads, width, layers, pipeline, GPUs, batch, b, v, seconds with full
# recomputation, seconds with sequence parallelism and selective recomputation; 8 tensor ranks
ROWS = [
    (22, 64, 6144, 48, 1, 8, 4, 4, 1, 1.42, 1.10),
    (175, 96, 12288, 96, 8, 64, 64, 1, 3, 18.13, 13.75),
    (530, 128, 20480, 105, 35, 280, 280, 1, 3, 49.05, 37.83),
    (1008, 160, 25600, 128, 64, 512, 512, 1, 1, 94.42, 71.49),
]
TENSOR = 8
LIMIT = "memory.device_limit=1TiB"  # full recomputation needs more than the device has
WAYS = (FULL, ["memory.recompute=selective", "parallel.sequence=true"])
# Figure 1, in GiB: weights and optimizer; activations without recomputation; the same with sequence
# parallelism and selective recomputation
MEMORY = {22: (45.6, 59.25, 9.56), 175: (45.6, 66.8, 12.35), 530: (31.6, 114.0, 23.1),
          1008: (33.0, 131.25, 26.6)}
# Table 4: milliseconds forward and backward
LAYER = [("baseline", 19.6, ["memory.recompute=none"]),
         ("sequence parallelism", 19.0, ["memory.recompute=none", "parallel.sequence=true"]),
         ("full recomputation", 27.2, FULL),
         ("selective recomputation", 20.9, ["memory.recompute=selective"]),
         ("both", 20.3, ["memory.recompute=selective", "parallel.sequence=true"])]


def table5(planner):
    wrong, times, log_ratios = [], [], []
    for _, heads, width, layers, pipeline, gpus, batch, b, chunks, *measured in ROWS:
        words = grid(TENSOR, pipeline, chunks, batch, b) + [LIMIT]
        times.append([planner.plan(gpus, heads, width, layers, words + way)["cluster"]["step_time"]
                      for way in WAYS])
        log_ratios += [math.log(m / t) for m, t in zip(measured, times[-1])]
    covered = 0
    for i, (row, steps) in enumerate(zip(ROWS, times)):
        measured = row[-2:]
        others = log_ratios[:2 * i] + log_ratios[2 * i + 2:]
        alone = math.exp(sum(others) / len(others))
        errors = [step / m - 1 for m, step in zip(measured, steps)]
        covered += sum(abs(m / (step * alone) - 1) <= SPREAD for m, step in zip(measured, steps))
        gain, published = steps[0] / steps[1] - 1, measured[0] / measured[1] - 1
        print(f"{row[0]:5d} B: full {steps[0]:6.2f} s, measured {measured[0]:6.2f} s, "
              f"{100 * errors[0]:+.1f} %; sequence + selective {steps[1]:6.2f} s, measured "
              f"{measured[1]:6.2f} s, {100 * errors[1]:+.1f} %; gain {100 * gain:.1f} %, measured "
              f"{100 * published:.1f} %")
        if max(map(abs, errors)) > MOST:
            wrong.append(f"{row[0]} B: errors {errors[0]:.3f}, {errors[1]:.3f}")
        if abs(gain - published) > MOST_GAIN:
            wrong.append(f"{row[0]} B: the gain is {gain:.3f}, not {published:.3f}")
    print(f"the interval covers {covered} of {2 * len(ROWS)} with the factor of the other rows; "
          f"fitted factor {math.exp(sum(log_ratios) / len(log_ratios)):.4f} of that in the file")
    if covered < 2 * len(ROWS) - 1:
        wrong.append(f"the interval covers {covered}")
    return wrong


def difference(planner, row, words, few, many, of):
    """How much `of` a plan grows for each layer of a virtual stage."""
    _, heads, width, _, pipeline, gpus, _, b, chunks, *_ = row
    virtual = pipeline * chunks
    numbers = []
    for each in (few, many):
        more = grid(TENSOR, pipeline, chunks, 2 * pipeline * b, b) + [LIMIT] + words
        if virtual > 1:
            more.append(f"parallel.partition=[{','.join([str(each)] * virtual)}]")
        numbers.append(of(planner.plan(gpus, heads, width, each * virtual, more)))
    return (numbers[1] - numbers[0]) / (many - few)


def table4(planner):
    def busy(plan):  # of one of two micro-batches, without the update
        cluster = plan["cluster"]
        return cluster["step_time"] * (1 - cluster["parts"]["norms and updates"]) / 2

    wrong, first = [], None
    for name, measured, words in LAYER:
        took = 1e3 * difference(planner, ROWS[0], words, 2, 6, busy)
        first = first or (took, measured)
        over, published = took / first[0] - 1, measured / first[1] - 1
        print(f"layer of 22 B, {name}: {took:.1f} ms, {100 * over:+.1f} %; measured {measured} ms, "
              f"{100 * published:+.1f} %")
        if abs(over - published) > MOST_LAYER:
            wrong.append(f"{name}: {over:+.3f} instead of {published:+.3f}")
    return wrong


def first_rank(plan):
    return plan["plans"][plan["ranks"][0]["plan"]]["memory"]


def activations(plan):
    return first_rank(plan)["peak_bytes"]["activations"]


def states(plan):
    return sum(first_rank(plan)["model_states_bytes"].values())


def compare(what, row, found, wanted):
    return [] if found == wanted else [f"{row[0]} B: {what}: {found} bytes, not {wanted}"]


def figure1(planner):
    wrong, t = [], TENSOR
    for row in ROWS:
        name, a, h, layers, p, _, _, b, v, *_ = row
        sb = TOKENS * b
        sbh = sb * h
        # The first stage keeps this many micro-batches, summed over one layer of each chunk.
        flight = p * v + p - 1 if v > 1 else p
        # A layer of the paper: equations 2 and 4, the latter without the scores that selective
        # recomputation drops.
        scores = 5 * a * TOKENS * sb // t
        plain = 10 * sbh + 24 * sbh // t + scores
        selective = 34 * sbh // t
        # Our kernels draw masks again (2), compute outputs of norms (4) and GELU (8) again and keep
        # no scores, but for each row statistics of two norms (16 bytes), and of each head (4).
        # Selective recomputation drops attention's output (2) and its statistics.
        ours = plain - 2 * sbh - 4 * sbh - 8 * sbh // t - scores + sb * (16 + 4 * a // t)
        ours_selective = selective - (2 + 4 + 8 + 2) * sbh // t + sb * 16 // t
        found = difference(planner, row, ["memory.recompute=none"], 1, 2, activations) / flight
        wrong += compare("activations of a layer", row, found, ours)
        found = difference(planner, row, WAYS[1], 1, 2, activations) / flight
        wrong += compare("with sequence parallelism and selective recomputation", row, found,
                         ours_selective)
        # 18 bytes for each element of a matrix: weights 2, gradients 4, master and moments 12. The
        # paper counts nothing else; vectors are fp32 and need no master.
        matrices, vectors = 18 * 12 * h * h // t, 16 * (6 * h + 7 * h // t)
        found = difference(planner, row, [], 1, 2, states) / v
        wrong += compare("weights and optimizer of a layer", row, found, matrices + vectors)
        own = layers // p
        totals = [matrices * own, plain * flight * own / v, selective * flight * own / v]
        for number, published in zip(totals, MEMORY[name]):
            if abs(number / 2**30 / published - 1) > 2e-3:
                wrong.append(f"{name} B: {number / 2**30:.2f} GiB, the paper has {published}")
        mine = [(matrices + vectors) * own, ours * flight * own / v,
                ours_selective * flight * own / v]
        print(f"{name} B, GiB of the paper and ours: weights and optimizer, activations, with "
              "sequence parallelism and selective recomputation: " +
              "; ".join(f"{x / 2**30:.2f}, {y / 2**30:.2f}" for x, y in zip(totals, mine)))
    return wrong


def main():
    with Planner(sys.argv[1], "a100_2022.yaml") as planner:
        finish(table5(planner) + table4(planner) + figure1(planner))


main()
