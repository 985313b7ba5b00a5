# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: four ranks on two machines, as two network namespaces joined by link.py's
link of 1 Gbit.

Two ranks of a machine share memory, so the traffic over the link dominates the cost. With `direct`
and `ring` it is as much as if each rank were on its own machine. With `hierarchical` it is as much
as if a machine had one rank, and with `torus`, too, whose rows are the machines. """
import statistics

import common
import link
import report
import train_step

EACH = 2  # ranks of a machine
REDUCTIONS = {"direct": [], "ring": [], "torus": [],
              "hierarchical": [f"parallel.node_ranks={EACH}"]}
HEADS = ("reduction", "MB sent by rank 0", "ms a step", "over direct")
WANTED = 1  # hierarchical over direct, at most


def train(bench, ends, shape, reduction):
    """Step times of a run of one micro-batch of one sample a rank, and bytes sent."""
    run = bench.folder / f"run-{reduction}-{len(list(bench.folder.glob('run-*')))}"
    keys = train_step.step_keys(shape, bench.folder, bench.warmup + bench.steps, EACH * link.RANKS)
    keys += ["parallel.threads=1", "parallel.comm=mpi", f"parallel.reduction={reduction}",
             f"log.directory={run}", *REDUCTIONS[reduction]]
    words = [bench.echelon, "train", bench.folder / "run.yaml", *keys]
    common.run_together([(ends.words(words, EACH), {})])
    sent = max(line["bytes_sent"] for line in common.read_metrics(run)[1:])
    return link.seconds_of(bench, run), sent


def compare(bench, ends, shape):
    seconds, sent = {name: [] for name in REDUCTIONS}, {}
    for _ in range(bench.rounds):
        for name in REDUCTIONS:
            steps, sent[name] = train(bench, ends, shape, name)
            seconds[name] += steps
    direct = statistics.median(seconds["direct"])
    report.table(HEADS, [(name, f"{sent[name] / 1e6:.1f}", common.spread(seconds[name]),
                          f"{statistics.median(seconds[name]) / direct:.2f}")
                         for name in REDUCTIONS])
    bench.verdict("2 machines of 2 ranks over 1 Gbit: hierarchical over direct",
                  statistics.median(seconds["hierarchical"]) / direct, WANTED, least=False)


def run(bench):
    report.title(f"Two ranks on each of two machines, a link of 1 Gbit between them: {link.SHAPE}")
    shape = train_step.shape_of(bench, link.SHAPE) | dict(batch=1)
    common.write_tokens(shape, bench.folder)
    (bench.folder / "run.yaml").write_text("log: {every: 1000}\n")
    link.with_link(bench, "two machines over a link of 1 Gbit",
                   lambda ends: compare(bench, ends, shape))
