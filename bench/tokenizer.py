#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second against Hugging Face's library, on one thread and the same text.

tokenizer.py BENCH_TOKENIZER SOURCE TEXT: SOURCE is a tokenizer.json, or a folder with encoder.json
and vocab.bpe. Both take turns, and seconds are those on a core, so a busy machine changes little.
The library gets the text in lines and in batches of lines, whichever is faster. """
import os
import pathlib
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
try:
    import tokenizers
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

ROUNDS, BYTES = 3, 8_000_000


def load(source):
    path = pathlib.Path(source)
    if path.is_file():
        return tokenizers.Tokenizer.from_file(source)
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE.from_file(str(path / "encoder.json"), str(path / "vocab.bpe"))
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made


def rate(theirs, lines):
    best = 0
    for use in (lambda: [theirs.encode(line, add_special_tokens=False) for line in lines],
                lambda: theirs.encode_batch_fast(lines, add_special_tokens=False)):
        start = time.process_time()
        use()
        best = max(
            best, sum(len(line.encode()) for line in lines) / (time.process_time() - start) / 1e6
        )
    return best


def main():
    bench, source, text = sys.argv[1:]
    theirs, whole = load(source), pathlib.Path(text).read_text()
    lines = (whole * (BYTES // len(whole) + 1))[:BYTES].splitlines(keepends=True)
    ratios = []
    for _ in range(ROUNDS):
        ours = float(
            subprocess.run(
                [bench, source, text], stdout=subprocess.PIPE, text=True, check=True
            ).stdout.split()[0]
        )
        other = rate(theirs, lines)
        ratios.append(ours / other)
        print(
            f"echelon {ours:.1f} MB/s, tokenizers {tokenizers.__version__} {other:.1f} MB/s, "
            f"ratio {ours / other:.1f}"
        )
    print(f"median ratio {sorted(ratios)[ROUNDS // 2]:.1f}")


main()
