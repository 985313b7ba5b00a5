# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: how a step's time grows with what it does, one rank of two threads.

    micro-batches  of a fixed size, 1 to 64 a step: the time of a token should stay within 10%
    layers         2 to 16: the time of a step should be a + b L, within 5%
    tokens         256 to 8,192 a sample, one sample: the time of a step should be a + b T + c T^2,
                   within 10%, where c T^2 is attention; planned memory besides weights a + b T

Lines and parabolas are fitted to relative deviations, which are what is compared.
"""
import json
import statistics

import common
import report
import train_step
from common import numpy

MODEL = dict(architecture="gpt2", hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=4, intermediate_size=1024, tie_word_embeddings=True, length=256,
             batch=4)
SMALL = MODEL | dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=2,
                     intermediate_size=64, length=32)
MICRO_BATCHES, LAYERS, TOKENS = (
    (1, 2, 4, 16, 64),
    (2, 4, 8, 12, 16),
    tuple(256 << i for i in range(6)),
)
MOST_FLAT, MOST_LINEAR, MOST_PARABOLA, MOST_MEMORY = 1.1, 0.05, 0.1, 0.02


class Series:
    """One size of the model or step after the other, in turns."""

    def __init__(self, bench, values, case):
        """`case` makes of a value: (shape, micro-batches)."""
        self.bench, self.cases = bench, {value: case(value) for value in values}
        self.seconds = {value: [] for value in values}
        for value, (shape, micro_batches) in self.cases.items():
            tokens = shape["batch"] * shape["length"] * micro_batches
            common.write_tokens(shape, bench.folder, max(1 << 18, 2 * tokens))
        for _ in range(bench.rounds):
            for value, (shape, micro_batches) in self.cases.items():
                # Long steps: fewer of them.
                warmup, steps = (bench.warmup, bench.steps) if micro_batches < 8 else (1, 2)
                keys = train_step.step_keys(shape, bench.folder, warmup + steps, micro_batches)
                self.seconds[value] += train_step.run_echelon(bench, keys)["seconds"][warmup:]

    def medians(self):
        return numpy.array([statistics.median(seconds) for seconds in self.seconds.values()])

    def values(self):
        return numpy.array(list(self.cases), dtype=float)

    def fit(self, figures, powers):
        """Coefficients of a sum of powers of the values, and the figures over what they say."""
        terms = numpy.stack([self.values() ** power for power in powers], axis=1)
        found, *_ = numpy.linalg.lstsq(
            terms / figures[:, None], numpy.ones(len(figures)), rcond=None
        )
        return found, figures / (terms @ found)


def worst(over):
    return float(abs(over - 1).max())


def base(bench):
    return SMALL if bench.quick else MODEL


def micro_batches(bench):
    report.title("Growth: micro-batches of 1,024 tokens, one step")
    series = Series(bench, MICRO_BATCHES[:3] if bench.quick else MICRO_BATCHES,
                    lambda count: (base(bench), count))
    tokens = base(bench)["batch"] * base(bench)["length"]
    each = series.medians() / series.values() / tokens
    report.table(("micro-batches", "ms a step [quartiles]", "us a token"),
                 [(count, common.spread(seconds), f"{1e6 * own:.2f}")
                  for (count, seconds), own in zip(series.seconds.items(), each)])
    bench.verdict("1 to 64 micro-batches: dearest token over cheapest",
                  float(each.max() / each.min()), MOST_FLAT, least=False)


def layers(bench):
    report.title("Growth: layers")
    series = Series(bench, LAYERS[:3] if bench.quick else LAYERS,
                    lambda count: (base(bench) | dict(num_hidden_layers=count), 1))
    (a, b), over = series.fit(series.medians(), (0, 1))
    report.table(("layers", "ms a step [quartiles]", "over the line"),
                 [(count, common.spread(seconds), f"{own:.3f}")
                  for (count, seconds), own in zip(series.seconds.items(), over)])
    print(f"the line: {1e3 * a:.2f} ms + {1e3 * b:.2f} ms a layer")
    bench.verdict("2 to 16 layers: farthest from a line", worst(over), MOST_LINEAR, least=False)


def planned_bytes(bench, shape):
    """Besides weights, gradients and the optimizer's states."""
    keys = train_step.step_keys(shape, bench.folder, 1) + ["parallel.comm=local"]
    printed, _ = common.call_echelon(bench.echelon, ["plan", "--json"], 1, train_step.THREADS,
                                     [*keys, f"log.directory={bench.folder}/plan"], bench.folder)
    memory = json.loads(printed)["plans"][0]["memory"]
    return memory["arena_bytes"] - sum(
        memory["peak_bytes"][kind] for kind in ("parameters", "gradients", "optimizer", "snapshot")
    )


def tokens(bench):
    report.title("Growth: tokens of a sample")
    shape = base(bench) | dict(num_hidden_layers=2, batch=1)
    series = Series(bench, TOKENS[:4] if bench.quick else TOKENS,
                    lambda count: (shape | dict(length=count), 1))
    (a, b, c), over = series.fit(series.medians(), (0, 1, 2))
    bytes = numpy.array([float(planned_bytes(bench, own)) for own, _ in series.cases.values()])
    _, straight = series.fit(bytes, (0, 1))
    rows = [
        (
            f"{count:,}",
            common.spread(seconds),
            f"{fitted:.3f}",
            f"{100 * c * count ** 2 / (a + b * count + c * count ** 2):.1f}%",
            f"{held / 2 ** 20:.1f}",
            f"{line:.3f}",
        )
        for (count, seconds), fitted, held, line in zip(
            series.seconds.items(), over, bytes, straight
        )
    ]
    report.table(("tokens", "ms a step [quartiles]", "over the parabola", "of it in T^2",
                  "MiB planned", "over the line"), rows)
    print(f"the parabola: {1e3 * a:.2f} ms + {1e6 * b:.3f} us T + {1e9 * c:.3f} ns T^2")
    bench.verdict("256 to 8,192 tokens: farthest from a + b T + c T^2", worst(over), MOST_PARABOLA,
                  least=False)
    bench.verdict("256 to 8,192 tokens: planned memory, farthest from a line", worst(straight),
                  MOST_MEMORY, least=False)


def run(bench):
    for part in (micro_batches, layers, tokens):
        part(bench)
