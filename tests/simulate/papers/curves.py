#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four figures of Narayanan et al. 2021 (arXiv:2104.04473) as shapes of curves, planned and
simulated by `echelon plan`. Settings are those of NVIDIA's scripts for the figures.

    curves.py ECHELON

12  interleaving, 175 billion parameters on 96 GPUs: it gains most at small batches
13  tensor x pipeline ranks, 162 billion on 64 GPUs: 8 tensor ranks, one machine, are best, and
    tensor parallelism across machines is up to 2 x slower. Prediction: 3.8 to 4.3 x if a group uses
    one NIC of each machine, 1.2 to 1.3 x if it uses all eight
16  micro-batch size, 91 billion on 64 GPUs: 2 is best. Prediction: 1 or 2, within 4 %
18  scatter/gather of messages, as figure 12 with interleaving: up to 11 % faster
"""
import os
import sys

sys.dont_write_bytecode = True
from planned import FULL, Planner, finish, flops, grid  # pylint: disable=wrong-import-position

BATCHES = (12, 24, 36, 48, 60)


def rate(planner, gpus, heads, width, layers, batch, words):
    step = planner.plan(gpus, heads, width, layers,
                        words + FULL + ["memory.device_limit=1TiB"])["cluster"]["step_time"]
    return flops(width, layers, batch) / step / gpus / 1e12


def gpt3(planner, chunks):
    """TFLOP/s of a GPU by batch."""
    return [rate(planner, 96, 96, 12288, 96, batch, grid(8, 12, chunks, batch, 1))
            for batch in BATCHES]


def gains(name, faster, slower):
    gain = [f / s - 1 for f, s in zip(faster, slower)]
    print(f"{name}: batches {BATCHES}: TFLOP/s " + ", ".join(
        f"{s:.0f} -> {f:.0f} ({100 * g:+.1f} %)" for f, s, g in zip(faster, slower, gain)))
    return gain


def changed(planner, before, after):
    """A cluster file in which one number is another."""
    with open(planner.cluster, encoding="utf-8") as file:
        text = file.read()
    assert text.count(before) == 1
    path = os.path.join(planner.folder.name, "changed.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(before, after))
    return path


def figures_12_and_18(planner):
    wrong = []
    interleaved = gpt3(planner, 4)
    gain = gains("figure 12, interleaving", interleaved, gpt3(planner, 1))
    if gain != sorted(gain, reverse=True) or gain[-1] < 0 or gain[0] < 0.1:
        wrong.append(f"figure 12: gains {gain}")
    # Without scatter/gather each of 8 tensor ranks sends the whole tensor over its own link.
    own = planner.cluster
    planner.cluster = changed(planner, "bandwidth: 25 GB/s", "bandwidth: 3.125 GB/s")
    gain = gains("figure 18, scatter/gather", interleaved, gpt3(planner, 4))
    planner.cluster = own
    if min(gain) < 0 or not 0.05 <= max(gain) <= 0.15:
        wrong.append(f"figure 18: gains {gain}")
    return wrong


def tensor_rates(planner, batch):
    """TFLOP/s of a GPU by number of tensor ranks."""
    rates = {t: rate(planner, 64, 128, 20480, 32, batch, grid(t, 64 // t, 1, batch, 1))
             for t in (2, 4, 8, 16, 32)}
    print(f"figure 13, batch {batch}: TFLOP/s by tensor ranks " +
          ", ".join(f"{t}: {r:.0f}" for t, r in rates.items()))
    return rates


def figure_13(planner):
    wrong, own, slower = [], planner.cluster, []
    for cluster in (own, changed(planner, "links: 1}", "links: 8}")):
        planner.cluster = cluster
        for batch in (32, 128):
            rates = tensor_rates(planner, batch)
            slower.append(rates[8] / rates[32])
            if max(rates, key=rates.get) != 8 or rates[16] < rates[32]:
                wrong.append(f"figure 13, batch {batch}: {rates}")
    planner.cluster = own
    if not max(slower[2:]) < 2 < min(slower[:2]):
        wrong.append(f"figure 13: 32 tensor ranks are slower by {slower}")
    return wrong


def figure_16(planner):
    wrong = []
    for batch in (128, 512):
        rates = {b: rate(planner, 64, 128, 15360, 32, batch, grid(8, 8, 1, batch, b))
                 for b in (1, 2, 4, 8)}
        print(f"figure 16, batch {batch}: TFLOP/s by micro-batch size " +
              ", ".join(f"{b}: {r:.0f}" for b, r in rates.items()))
        best = max(rates.values())
        if rates[2] < 0.96 * best or best in (rates[4], rates[8]) or rates[4] < rates[8]:
            wrong.append(f"figure 16, batch {batch}: {rates}")
    return wrong


def main():
    with Planner(sys.argv[1], "a100_2021.yaml") as planner:
        finish(figures_12_and_18(planner) + figure_13(planner) + figure_16(planner))


main()
