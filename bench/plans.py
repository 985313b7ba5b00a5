# SPDX-License-Identifier: Apache-2.0
"""What `echelon plan` costs: planning, checking and simulating all ranks of large runs in one
process.

    python bench/plans.py [--program build/release/echelon] [--rounds 3]

Medians of processor time and of the largest resident set. A target that is missed is followed by
the program's profile, where `perf` is there. Exit code 1: a target is missed. """
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import report

LLAMA = [
    "model.architecture=llama",
    "model.vocab_size=32000",
    "model.hidden_size=8192",
    "model.num_attention_heads=64",
    "model.num_key_value_heads=8",
    "model.intermediate_size=28672",
    "model.num_hidden_layers=80",
    "data.sequence_length=2048",
]
GPT3 = ["model.architecture=gpt2", "model.vocab_size=50257", "model.hidden_size=12288",
        "model.num_attention_heads=96", "model.num_hidden_layers=96", "data.sequence_length=2048"]
SMALL = ["model.architecture=gpt2", "model.vocab_size=257", "model.hidden_size=64",
         "model.num_attention_heads=4", "model.num_hidden_layers=4", "data.sequence_length=16"]
GRID = ["parallel.pipeline=8", "parallel.tensor=8"]
# name, ranks, micro-batches, keys, most seconds, most GB (None: recorded, not judged)
CASES = [
    ("Llama, 80 layers, 8 stages x 8 tensor ranks", 64, 64, LLAMA + GRID, 2, 1),
    ("the same", 64, 1024, LLAMA + GRID, 25, 1),
    ("the same, sequence parallel", 64, 1024, LLAMA + GRID + ["parallel.sequence=true"], None, 1),
    ("GPT-2, 4 layers, 2 stages", 2, 4000, SMALL + ["parallel.pipeline=2"], 1.5, 1),
    ("the same", 2, 8000, SMALL + ["parallel.pipeline=2"], None, 1),
    (
        "GPT-3, 96 layers, 16 stages x 8 replicas x 8 tensor ranks",
        1024,
        1536,
        GPT3 + ["parallel.pipeline=16", "parallel.tensor=8", "parallel.data=8"],
        None,
        None,
    ),
]
MOST_GROWTH = 2.2  # of the shortest time, with twice as many micro-batches


def command(program, folder, ranks, micro_batches, keys):
    run = folder / "run.yaml"
    (folder / "text.txt").write_text("a text\n" * 4096)
    run.write_text(f"data: {{train: {folder / 'text.txt'}, tokenizer: bytes}}\n"
                   "training: {steps: 10, micro_batch_size: 1}\n"
                   "optimizer: {learning_rate: 1e-3}\n"
                   f"log: {{directory: {folder / 'run'}}}\n"
                   "memory: {device_limit: 100TiB}\n")
    return [program, "plan", run, "--ranks", str(ranks), "--simulate",
            f"training.global_batch_size={micro_batches}", *keys]


def measure(words):
    """Processor seconds and GB of one run."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(map(str, words))}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9


def profile(words, folder):
    if not shutil.which("perf"):
        return
    data = folder / "perf.data"
    subprocess.run(
        ["perf", "record", "-q", "-F", "500", "-o", data, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    shown = subprocess.run(["perf", "report", "-q", "--stdio", "--percent-limit", "2", "-i", data],
                           capture_output=True, text=True, check=False).stdout
    report.title(f"Profile of {' '.join(map(str, words))}")
    print(shown)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/echelon", type=pathlib.Path)
    parser.add_argument("--rounds", default=3, type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, rows, verdicts, missed, seconds = pathlib.Path(name), [], [], [], {}
        for what, ranks, micro_batches, keys, most_seconds, most_gb in CASES:
            words = command(options.program.resolve(), folder, ranks, micro_batches, keys)
            runs = [measure(words) for _ in range(options.rounds)]
            time, memory = (statistics.median(figures) for figures in zip(*runs))
            seconds[micro_batches] = min(runs)[0]  # what else runs only adds
            rows.append((what, ranks, f"{micro_batches:,}", f"{time:.2f}", f"{memory:.2f}"))
            named = f"{what}, {micro_batches:,}"
            new = [report.Verdict(f"{named}: s", time, most_seconds, False)] if most_seconds else []
            new += [report.Verdict(f"{named}: GB", memory, most_gb, False)] if most_gb else []
            if not all(verdict.met() for verdict in new):
                missed.append(words)
            verdicts += new
        verdicts.append(report.Verdict("GPT-2, 8,000 micro-batches over 4,000",
                                       seconds[8000] / seconds[4000], MOST_GROWTH, False))
        report.title("Plans: processor time and memory")
        report.table(("", "ranks", "micro-batches", "s", "GB"), rows)
        report.verdicts(verdicts)
        for words in missed:
            profile(words, folder)
    return not all(verdict.met() for verdict in verdicts)


if __name__ == "__main__":
    sys.exit(main())
