#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of Narayanan et al. 2021 (arXiv:2104.04473), planned and simulated by `echelon plan`.

    narayanan.py ECHELON 1|2

Table 1: ten GPT models of 1.7 to 1,008 billion parameters on 32 to 3,072 A100. Micro-batch b and
chunks v are those of NVIDIA's scripts. The measured seconds of a step follow from the published
FLOP/s by the paper's equation 3. One factor, step.factor of a100_2021.yaml, is fitted to all ten
rows.

Table 2: two models with ZeRO-3, and with tensor and pipeline parallelism (PTD-P), by the same file.
The paper does not say how many chunks PTD-P had here, nor how many layers share a kept input with
ZeRO-3; we use one chunk, and as many layers as need the least memory.
"""
import math
import sys

sys.dont_write_bytecode = True
import traffic  # pylint: disable=wrong-import-position
from planned import FULL, Planner, finish, flops, grid  # pylint: disable=wrong-import-position

MEAN, MOST = 0.03, 0.06  # errors
SPREAD = 0.06            # of the interval, with the factor of the other nine rows
# billions of parameters, heads, width, layers, tensor, pipeline, GPUs, batch, b, v, seconds
ROWS = [
    (1.7, 24, 2304, 24, 1, 1, 32, 512, 16, 1, 3.52),
    (3.6, 32, 3072, 30, 2, 1, 64, 512, 16, 1, 3.71),
    (7.5, 32, 4096, 36, 4, 1, 128, 512, 16, 1, 3.69),
    (18.4, 48, 6144, 40, 8, 1, 256, 1024, 8, 1, 9.39),
    (39.1, 64, 8192, 48, 8, 2, 512, 1536, 4, 1, 14.42),
    (76.1, 80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 16.01),
    (145.6, 96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 24.84),
    (310.1, 128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 37.64),
    (529.6, 128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 54.16),
    (1008, 160, 25600, 128, 8, 64, 3072, 3072, 1, 1, 102.4),
]


# billions, heads, width, layers, batch, GPUs, b, tensor, pipeline (0: ZeRO-3), TFLOP/s of a GPU
ZERO_ROWS = [
    (174.6, 96, 12288, 96, 1536, 384, 4, 1, 0, 144),
    (174.6, 96, 12288, 96, 1536, 768, 2, 1, 0, 88),
    (174.6, 96, 12288, 96, 1536, 1536, 1, 1, 0, 44),
    (529.6, 128, 20480, 105, 2560, 640, 4, 1, 0, 138),
    (529.6, 128, 20480, 105, 2240, 1120, 2, 1, 0, 98),
    (529.6, 128, 20480, 105, 2240, 2240, 1, 1, 0, 48),
    (174.6, 96, 12288, 96, 1536, 384, 1, 8, 12, 153),
    (174.6, 96, 12288, 96, 1536, 768, 1, 8, 12, 149),
    (174.6, 96, 12288, 96, 1536, 1536, 1, 8, 12, 141),
    (529.6, 128, 20480, 105, 2240, 560, 1, 8, 35, 171),
    (529.6, 128, 20480, 105, 2240, 1120, 1, 8, 35, 167),
    (529.6, 128, 20480, 105, 2240, 2240, 1, 8, 35, 159),
]
ZERO_MOST = 0.15


def plan(planner, row):
    _, heads, width, layers, tensor, pipeline, gpus, batch, b, chunks, _ = row
    return planner.plan(gpus, heads, width, layers, grid(tensor, pipeline, chunks, batch, b) + FULL)


def table1(planner):
    plans = [plan(planner, row) for row in ROWS]
    wrong = []
    log_ratios = [math.log(row[-1] / p["cluster"]["step_time"]) for row, p in zip(ROWS, plans)]
    errors, covered = [], 0
    for i, (row, p) in enumerate(zip(ROWS, plans)):
        step = p["cluster"]["step_time"]
        others = log_ratios[:i] + log_ratios[i + 1:]
        alone = step * math.exp(sum(others) / len(others))
        errors.append(step / row[-1] - 1)
        covered += abs(row[-1] / alone - 1) <= SPREAD
        billions = p["model"]["parameters"] / 1e9
        if abs(billions - row[0]) > (0.06 if row[0] < 1000 else 0.5):  # rounding of the paper's
            wrong.append(f"{row[0]} B: has {billions:.2f} B parameters")
        wrong += traffic.compare(planner, row, p)
        pipeline, chunks = row[5], row[9]
        micro_batches = row[7] // row[8] // (row[6] // row[4] // pipeline)
        bubble = (pipeline - 1) / (chunks * micro_batches + pipeline - 1)
        part = p["cluster"]["parts"]["waiting for other stages: the bubble and messages"]
        if not bubble <= part + 0.03 <= bubble + 0.1:
            wrong.append(f"{row[0]} B: waits for stages are {part:.3f}, the bubble is {bubble:.3f}")
        if not math.isclose(sum(p["cluster"]["parts"].values()), 1, rel_tol=1e-6):
            wrong.append(f"{row[0]} B: the parts of the time are not all of it")
        print(f"{row[0]:7.1f} B on {row[6]:5d}: {step:7.2f} s, measured {row[-1]:7.2f} s, "
              f"{100 * errors[-1]:+.1f} %, waits for stages {100 * part:.1f} %, "
              f"the paper's bubble {100 * bubble:.1f} %")
    mean = sum(abs(e) for e in errors) / len(errors)
    print(f"mean error {100 * mean:.1f} %, most {100 * max(map(abs, errors)):.1f} %; the interval "
          f"covers {covered} of {len(ROWS)}; fitted factor "
          f"{math.exp(sum(log_ratios) / len(log_ratios)):.4f} of that in the file")
    if mean > MEAN:
        wrong.append(f"mean error {mean:.3f}")
    if max(map(abs, errors)) > MOST:
        wrong.append(f"largest error {max(map(abs, errors)):.3f}")
    if covered < 9:
        wrong.append(f"the interval covers {covered}")
    return wrong


def table2(planner):
    wrong, predicted = [], {}
    for row in ZERO_ROWS:
        billions, heads, width, layers, batch, gpus, b, tensor, pipeline, measured = row
        words = grid(tensor, pipeline or 1, 1, batch, b) + ["memory.device_limit=1TiB"]
        words += FULL if pipeline else ["parallel.zero=3", "memory.recompute=full"]
        step = planner.plan(gpus, heads, width, layers, words)["cluster"]["step_time"]
        rate = flops(width, layers, batch) / step / gpus / 1e12
        name = "PTD-P " if pipeline else "ZeRO-3"
        predicted.setdefault((name, billions), []).append(rate)
        print(f"{name} {billions} B on {gpus:5d}: {rate:6.1f} TFLOP/s, measured {measured:4d}, "
              f"{100 * (rate / measured - 1):+.1f} %")
        if abs(rate / measured - 1) > ZERO_MOST:
            wrong.append(f"{name} {billions} B on {gpus}: {rate:.1f} TFLOP/s")
    for key, rates in predicted.items():
        if rates != sorted(rates, reverse=True):
            wrong.append(f"{key}: {rates} do not decline")
    for billions in (174.6, 529.6):  # at the smallest number of GPUs the two are close
        pairs = zip(predicted["ZeRO-3", billions], predicted["PTD-P ", billions])
        for zero, ptd in list(pairs)[1:]:
            if zero >= ptd:
                wrong.append(f"{billions} B: ZeRO-3 {zero:.1f} is above PTD-P {ptd:.1f}")
    return wrong


def main():
    with Planner(sys.argv[1], "a100_2021.yaml") as planner:
        finish({"1": table1, "2": table2}[sys.argv[2]](planner))


main()
