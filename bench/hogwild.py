# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: lock-free ranks on a sparse logistic regression of a million features, 80 a
sample.

Two ranks, each on a core of its own and with its loader on the same core, are compared with one
rank on one core, by samples per second of spans after the first. They are also compared with
bench_hogwild, a program of one page that runs only this SGD on the same samples. Its two threads
change weights by compare-and-swaps, or all of a batch's under one mutex. Its batches have as many
samples, or one sample as in Hogwild! (Niu et al. 2011). Two clusters of one rank with a token
between them (HogWild++) should be about as fast as the two ranks together. """
import pathlib
import statistics
import sys

import common
import report
from common import numpy

FEATURES, EACH, SKEW = 1_000_000, 80, 1
BATCH = 256  # samples of a rank's turn
SPAN, SPANS = 500, 2  # steps; spans that are timed, after one that is not
OVER_ONE, OVER_MUTEX, RING = 1.7, 1.5, 0.95


def make_samples(bench):
    """The samples as Echelon's token file, and as the program reads them."""
    count, script = 4000 if bench.quick else 60000, pathlib.Path(__file__).with_name("sparse.py")
    words = [
        sys.executable,
        script,
        "--samples",
        count,
        "--features",
        FEATURES,
        "--each",
        EACH,
        "--skew",
        SKEW,
    ]
    text, _ = common.run_together([(words, {})], timed=False)[0]
    (bench.folder / "sparse.libsvm").write_text(text)
    common.run_together(
        [
            (
                [
                    bench.echelon,
                    "data",
                    bench.folder / "sparse.libsvm",
                    bench.folder / "sparse",
                    "--features",
                    FEATURES,
                ],
                {},
            )
        ],
        timed=False,
    )
    rows = numpy.array(text.replace(":", " ").split(), dtype=numpy.float64).reshape(
        count, 1 + 2 * EACH
    )
    records = numpy.empty((count, 1 + 2 * EACH), numpy.int32)
    records[:, 0] = rows[:, 0] > 0
    records[:, 1:1 + EACH] = rows[:, 1::2] - 1
    records[:, 1 + EACH:] = rows[:, 2::2].astype(numpy.float32).view(numpy.int32)
    records.tofile(bench.folder / "sparse.raw")


def train(bench, ranks, strategy="hogwild"):
    """Samples per second."""
    run = bench.folder / f"run-{len(list(bench.folder.glob('run-*')))}"
    span = 4 if bench.quick else SPAN
    keys = {
        "model.architecture": "logistic",
        "model.vocab_size": FEATURES,
        "data.train": bench.folder / "sparse",
        "data.sequence_length": EACH,
        "training.steps": (1 + SPANS) * span,
        "training.micro_batch_size": BATCH,
        "training.global_batch_size": BATCH * ranks,
        "training.check_every": 0,
        "checkpoint.every": (1 + SPANS) * span,
        "optimizer.name": "sgd",
        "optimizer.learning_rate": 2,
        "optimizer.schedule": "constant",
        "optimizer.weight_decay": 0,
        "optimizer.clip_norm": 0,
        "parallel.strategy": strategy,
        "parallel.flush_every": span,
        "parallel.comm": "local",
    }
    seconds, _ = common.train_echelon(
        bench.echelon,
        ranks,
        1,
        [f"{key}={value}" for key, value in keys.items()],
        run,
        bench.folder,
    )
    return BATCH * ranks / statistics.mean(seconds[span:])


def peer(bench, way, threads, batch=BATCH):
    words = [bench.tool("bench_hogwild"), bench.folder / "sparse.raw", FEATURES, EACH, batch,
             0.2 if bench.quick else 3, way, threads]
    return float(
        common.run_together([(["taskset", "-c", f"0-{threads - 1}", *words], {})])[0][0].split()[0]
    )


def run(bench):
    report.title(f"Hogwild!: {FEATURES:,} features, {EACH} a sample, {BATCH} samples a turn")
    make_samples(bench)
    sides = {"Echelon, 1 rank": lambda: train(bench, 1),
             "Echelon, 2 ranks": lambda: train(bench, 2),
             "Echelon, 2 clusters of a rank": lambda: train(bench, 2, "hogwild_ring"),
             "the program alone": lambda: peer(bench, "alone", 1),
             "2 threads, compare-and-swap": lambda: peer(bench, "atomic", 2),
             "2 threads, a mutex": lambda: peer(bench, "mutex", 2),
             "alone, a sample at a time": lambda: peer(bench, "alone", 1, 1),
             "2 threads, compare-and-swap, a sample": lambda: peer(bench, "atomic", 2, 1),
             "2 threads, a mutex, a sample": lambda: peer(bench, "mutex", 2, 1)}
    seen = {name: [] for name in sides}
    for _ in range(bench.rounds):
        for name, once in sides.items():
            seen[name].append(once())
    rate = {name: statistics.median(rates) for name, rates in seen.items()}
    ours, mutex = rate["Echelon, 2 ranks"], rate["2 threads, a mutex, a sample"]
    report.table(("", "samples/s", "2 ranks over it"),
                 [(name, f"{rate[name]:,.0f}", f"{ours / rate[name]:.2f}") for name in sides])
    bench.verdict("lock-free: samples per second of 2 ranks over those of one",
                  ours / rate["Echelon, 1 rank"], OVER_ONE)
    bench.verdict(
        "over those of 2 threads that update each sample under a mutex", ours / mutex, OVER_MUTEX
    )
    bench.verdict("HogWild++: samples per second of 2 clusters of a rank over those of 2 ranks",
                  rate["Echelon, 2 clusters of a rank"] / ours, RING)
