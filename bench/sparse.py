#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes lines in LIBSVM's format for a sparse logistic regression, to standard output.

  python3 bench/sparse.py --samples 100000 --skew 4 > sparse.libsvm
  echelon data sparse.libsvm sparse --features 1000000 --valid 0.1

Each sample has equally many features, different from each other, with normal values. Its label is
drawn by the logistic function of the sum of weights times values; the weights are normal, and
--scale is the standard deviation of that sum. All features are alike, or with --skew K the first
ones are more frequent: the number of a feature is that of all times u^K, u uniform. The same
arguments give the same bytes. """
import argparse
import math
import random
import sys


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--each", type=int, default=80, help="features of a sample")
    parser.add_argument("--scale", type=float, default=3, help="standard deviation of logits")
    parser.add_argument("--seed", type=int, default=1, help="of the samples")
    parser.add_argument(
        "--weights",
        type=int,
        default=1,
        help="seed of the weights, which files with other samples share",
    )
    parser.add_argument("--skew", type=float, default=1)
    arguments = parser.parse_args()
    if not 1 <= arguments.each <= arguments.features:
        parser.error("a sample has at least one feature, and at most all")
    draw = random.Random(f"weights {arguments.weights}")
    weight = [draw.gauss(0, 1) for _ in range(arguments.features)]
    draw = random.Random(f"samples {arguments.seed}")
    scale = arguments.scale / math.sqrt(arguments.each)
    for _ in range(arguments.samples):
        drawn = set()
        while len(drawn) < arguments.each:
            drawn.add(int(arguments.features * draw.random() ** arguments.skew))
        index = sorted(drawn)
        value = [round(draw.gauss(0, 1), 4) for _ in index]
        logit = scale * sum(weight[i] * v for i, v in zip(index, value))
        label = "+1" if draw.random() < 1 / (1 + math.exp(-logit)) else "-1"
        sys.stdout.write(label + "".join(f" {i + 1}:{v:g}" for i, v in zip(index, value)) + "\n")


if __name__ == "__main__":
    main()
