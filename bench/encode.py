# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: what codes of kept values cost: one training step on two threads with
memory.encode none and each code, in fp32, in turns. GPT-2 with ReLU has both kinds of codes,
convolutional networks also have codes of pools. Then it measures the bytes per second of encoders
and decoders beside memory's."""
import json

import common
import convnets
import report
import train_step

CHOICES = ("none", "lossless", "fp16", "fp10", "fp8")
# Most of `none`'s time (the overhead of Jain et al. 2018 is 4% on average, 7% at most).
WANTED = {"lossless": 1.05, "fp16": 1.08, "fp10": 1.08, "fp8": 1.08}
NETWORKS = {"vgg-16": convnets.SHAPES["vgg-16"],
            "resnet-50": dict(architecture="resnet", weight_layers=50)}
KERNELS = ("encode_bits", "decode_bits", "encode_sparse", "decode_sparse", "encode_places",
           "decode_places", "encode_narrow", "decode_narrow")
OF_MEMORY = 0.6  # least share of memory's rate


def run(bench):
    for name in bench.shapes_of({"gpt2-124m": 1, "gpt2-6x384": 1}):
        measure(bench, name)
    for name, shape in NETWORKS.items():
        if not bench.shapes or name in bench.shapes:
            measure_network(bench, name, shape)
    measure_kernels(bench)


def measure(bench, name):
    shape, steps = train_step.shape_of(bench, name), bench.warmup + bench.steps
    report.title(f"Codes of kept values: {name} with ReLU, batch {shape['batch']} x "
                 f"{shape['length']}, {train_step.THREADS} threads")
    common.write_tokens(shape, bench.folder)
    keys = train_step.step_keys(shape, bench.folder, steps) + ["model.hidden_act=relu"]
    take_turns(bench, name, keys, shape["batch"] * shape["length"])


def measure_network(bench, name, shape):
    batch, steps = 2 if bench.quick else convnets.BATCH, bench.warmup + bench.steps
    report.title(f"Codes of kept values: {name}, batch {batch} of {convnets.SIDE} x "
                 f"{convnets.SIDE}, {train_step.THREADS} threads")
    images = convnets.write_images(bench)
    take_turns(bench, name, convnets.keys_of(shape, images, batch, steps), batch)


def take_turns(bench, name, keys, samples):
    sides = train_step.Sides(bench, {choice: lambda choice=choice: train_step.run_echelon(
        bench, [*keys, f"memory.encode={choice}"]) for choice in CHOICES})
    sides.take_turns()
    sides.show(samples, "none")
    none = sides.median("none")
    for choice, most in WANTED.items():
        bench.verdict(f"{name}: {choice} over none", sides.median(choice) / none, most,
                      least=False)


def measure_kernels(bench):
    """Shares of memory's rate, which `echelon bench` measures in the same run."""
    threads = str(train_step.THREADS)
    report.title(f"Encoders and decoders, {threads} threads")
    printed, _ = common.run_together([([bench.echelon, "bench", "--json", "--threads", threads,
                                        "--seconds", "0.5" if bench.quick else "20", *KERNELS],
                                       {})])[0]
    rows = []
    for kernel in json.loads(printed)["kernels"]:
        share = kernel["bound_seconds"] / kernel["seconds"]
        rows.append((kernel["name"], kernel["dtype"], kernel["shape"],
                     f"{kernel['bytes'] / kernel['seconds'] / 1e9:.1f}", f"{share:.2f}"))
        if kernel["dtype"] == "fp32":
            bench.verdict(f"{kernel['name']}, {kernel['bytes'] / 2**20:.0f} MiB: share of memory",
                          share, OF_MEMORY)
    report.table(("kernel", "type", "shape", "GB/s", "of memory's rate"), rows)
