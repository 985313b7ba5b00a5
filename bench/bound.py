# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: Echelon's training step against a bound that this machine sets.

The bound is a sum of times that no step of this model, in fp32 and with this library, is expected
to be below, unless caches keep what it counts as memory's:

    products    every matrix product of the step, once, at the measured rate of oneDNN for its
                shape: the best of a plain primitive, primitives on one or both matrices packed
                (packing not counted), and dnnl_sgemm (bench_products). The head may run on a chunk
                of tokens at a time; the fastest chunk counts.
    attention   the causal half of its products, none repeated, at the mean rate of the others
    optimizer   AdamW reads weights, gradients and two states and writes weights and states;
                clipping reads the gradients before: 8 times the weights' bytes, at the rate of
                STREAM
    the rest    what norms, activations, attention, residual sums, sums for biases and the loss read
                and write, each once, at the rate of STREAM

Rates of memory and of multiply-adds are those of `echelon bench`.
"""

import json
import statistics

import common
import report
import train_step

WANTED = {"gpt2-124m": 0.93}
FLOAT = 4
HEAD_ROWS = (128, 256, 512, 1024, 2048)


class Products:
    """(M, N, K, kind of both operands, how often) of a step. C (M x N) = A (M x K) B (K x N)."""

    def __init__(self, shape):
        self.rows = shape["batch"] * shape["length"]
        self.gpt2 = shape["architecture"] == "gpt2"
        self.inner, self.head = {}, []
        C, F, L = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
        width = C // shape["num_attention_heads"]
        qkv = C + 2 * shape["num_key_value_heads"] * width
        layer = [(C, qkv), (C, C), (C, F), (F, C)] if self.gpt2 else \
            [(C, qkv), (C, C), (C, F), (C, F), (F, C)]
        for inputs, outputs in layer:
            for key in self.linear(self.rows, inputs, outputs, self.gpt2):
                self.inner[key] = self.inner.get(key, 0) + L
        for rows in sorted({min(rows, self.rows) for rows in HEAD_ROWS}):
            if self.rows % rows == 0:
                self.head.append({key: self.rows // rows for key in
                                  self.linear(rows, C, common.vocabulary(shape), False)})

    @staticmethod
    def linear(rows, inputs, outputs, by_input):
        """Forward, gradient of the input, gradient of the weights, which are (in, out) or (out,
        in)."""
        if by_input:
            return ((rows, outputs, inputs, "nn"), (rows, inputs, outputs, "nt"),
                    (inputs, outputs, rows, "tn"))
        return ((rows, outputs, inputs, "nt"), (rows, inputs, outputs, "nn"),
                (outputs, inputs, rows, "tn"))

    def all(self):
        return sorted(set(self.inner).union(*self.head))


def flops(counts):
    return sum(2 * M * N * K * count for (M, N, K, _), count in counts.items())


def measure(bench, products):
    """Seconds of each product: (plain, B packed, both packed, sgemm)."""
    keys = products.all()
    words = [f"{M}x{N}x{K}:{kind}" for M, N, K, kind in keys]
    threads = train_step.THREADS
    printed, _ = common.run_together([(
        ["taskset", "-c", f"0-{threads - 1}", bench.tool("bench_products"),
         "0.002" if bench.quick else "0.15", *words],
        {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"})])[0]
    lines = [line.split() for line in printed.splitlines()]
    assert [line[0] for line in lines] == words
    return {key: tuple(map(float, line[1:])) for key, line in zip(keys, lines)}


def total(counts, seconds):
    return sum(count * min(seconds[key]) for key, count in counts.items())


def optimizer_bytes(parameters):
    return 8 * FLOAT * parameters


def other_bytes(shape):
    """Values of R = batch x length rows that are read or written besides products' own operands.

    Widths of a row in a layer: A norm forward reads and writes C. Its backward reads the input and
    the gradient, adds to the stream's gradient and writes it, 4 C. Attention forward reads queries,
    keys and values and writes its output; backward reads these four and the output's gradient and
    writes three. A residual sum reads the operand that is not the product before it, C. GELU
    forward reads and writes F, and backward reads two and writes one; SwiGLU has 3 F and 5 F. Sums
    for biases read each product's gradient. The embedding reads and writes C twice, the last norm
    is one more, and the loss reads logits twice and writes their gradient."""
    C, F, L = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    kv = 2 * C * shape["num_key_value_heads"] // shape["num_attention_heads"]
    norm, qkv = 6 * C, C + kv
    attention = (qkv + C) + (qkv + 2 * C + qkv)
    gpt2 = shape["architecture"] == "gpt2"
    activation = 5 * F if gpt2 else 8 * F
    biases = qkv + C + F + C if gpt2 else 0
    rotary = 0 if gpt2 else 4 * (C + kv // 2)
    layer = 2 * norm + attention + 2 * C + activation + biases + rotary
    row = L * layer + norm + 4 * C + 3 * common.vocabulary(shape)
    return FLOAT * shape["batch"] * shape["length"] * row


def step_flops(bench, shape):
    keys = train_step.step_keys(shape, bench.folder, 1) + ["parallel.comm=local"]
    printed, _ = common.call_echelon(bench.echelon, ["plan", "--json"], 1, train_step.THREADS,
                                     [*keys, f"log.directory={bench.folder}/plan"], bench.folder)
    return json.loads(printed)["model"]["flops_per_step"]


def show_products(products, seconds):
    def rate(key, own):
        M, N, K, _ = key
        return f"{2e-9 * M * N * K / own:.0f}"
    counts = dict(products.inner)
    for chunk in products.head:
        counts |= chunk
    report.table(
        ("product (M x N x K), A and B", "times", "plain GFLOP/s", "B packed", "both", "sgemm"),
        [
            (
                "{} x {} x {}  {}".format(*key),
                counts[key],
                *(rate(key, own) for own in seconds[key]),
            )
            for key in products.all()
        ],
    )


def compare(bench, name):
    shape = train_step.shape_of(bench, name)
    sides = train_step.measure(bench, name, with_torch=False)
    machine, products = bench.measure_machine(), Products(shape)
    seconds = measure(bench, products)
    show_products(products, seconds)
    head = min(products.head, key=lambda counts: total(counts, seconds))
    counts = products.inner | head
    multiply = total(counts, seconds)
    T, C, L = shape["length"], shape["hidden_size"], shape["num_hidden_layers"]
    attention = 6 * L * T * C * shape["batch"] * T
    stream = machine["stream_bytes_per_second"]
    parts = {"products": multiply, "attention": attention * multiply / flops(counts),
             "optimizer": optimizer_bytes(sides.parameters["Echelon"]) / stream,
             "the rest": other_bytes(shape) / stream}
    bound, step = sum(parts.values()), statistics.median(sides.seconds["Echelon"])
    print()
    report.table(("part of the bound", "ms", "of the step"),
                 [(part, f"{1e3 * own:.1f}", f"{100 * own / step:.1f}%")
                  for part, own in [*parts.items(), ("bound", bound), ("step", step)]])
    rate = step_flops(bench, shape) / step
    print(f"products' mean rate {1e-9 * flops(counts) / multiply:.0f} GFLOP/s; the step's, by "
          f"6 N tokens + 6 L T C tokens, {1e-9 * rate:.0f} GFLOP/s of the peak's "
          f"{1e-9 * machine['flops_per_second']:.0f}")
    bench.verdict(f"{name}: bound over the step's time", bound / step, WANTED.get(name, 0.93))
    bench.verdict(f"{name}: of the peak of multiply-adds (the aim)",
                  rate / machine["flops_per_second"], 0.85)


def run(bench):
    for name in bench.shapes_of(WANTED):
        report.title(f"A training step against its bound: {name}")
        compare(bench, name)
