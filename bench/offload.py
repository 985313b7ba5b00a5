# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: updates on the host (memory.offload_optimizer=host), GPT-2 124M on one rank
of two threads. How many bytes of gradients, weights and states UPDATE_ON_HOST reads and writes a
second, by --profile, over the rate of the machine's memory that the same run has measured at its
start. Then a step's time against one whose states are on the device. """
import json
import shutil
import statistics
import time

import common
import report
import train_step

SHAPE = "gpt2-124m"
OF_MEMORY = 0.8


def run_profiled(bench, keys):
    """Returns what train_step.run_echelon does, and {"update", "memory"} in bytes a second."""
    run = bench.folder / f"run-{time.monotonic_ns()}"
    seconds, count = common.train_echelon(
        bench.echelon,
        1,
        train_step.THREADS,
        [*keys, "memory.offload_optimizer=host", "parallel.comm=local", "--profile"],
        run,
        bench.folder,
    )
    losses = [line["loss"] for line in common.read_metrics(run)]
    first, *rows = map(json.loads, (run / "step_profile.jsonl").read_text().splitlines())
    update, = (row for row in rows if row["row"] == "update_on_host")
    shutil.rmtree(run)
    return (dict(seconds=seconds, losses=losses, parameters=count),
            dict(update=update["bytes"] / update["seconds"], memory=first["bytes_per_second"]))


def run(bench):
    shape = train_step.shape_of(bench, SHAPE)
    report.title(f"Updates on the host: {SHAPE}, {train_step.THREADS} threads")
    common.write_tokens(shape, bench.folder)
    keys = train_step.step_keys(shape, bench.folder, bench.warmup + bench.steps)
    rates = []

    def offloaded():
        seen, rate = run_profiled(bench, keys)
        rates.append(rate)
        return seen

    sides = train_step.Sides(bench, {"none": lambda: train_step.run_echelon(bench, keys),
                                     "host": offloaded})
    sides.take_turns()
    sides.show(shape["batch"] * shape["length"], "none")
    report.table(("GB/s", "updates on the host", "memory"),
                 [("", f"{1e-9 * rate['update']:.1f}", f"{1e-9 * rate['memory']:.1f}")
                  for rate in rates])
    bench.verdict("updates on the host: rate over memory's",
                  statistics.median(rate["update"] / rate["memory"] for rate in rates), OF_MEMORY)
