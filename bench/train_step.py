# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: one training step (forward, backward, clipping, AdamW; fp32) on two threads,
Echelon's against PyTorch's, on the same models and the same cores, in turns.

First every variant of PyTorch (torch_step.py) runs for a few steps; the fastest that is eager and
the fastest that is compiled then take turns with Echelon. What Echelon took is step_seconds of its
metrics.jsonl. """
import statistics
import time

import common
import report
import torch_step

SHAPES = {
    "gpt2-124m": dict(architecture="gpt2", hidden_size=768, num_hidden_layers=12,
                      num_attention_heads=12, num_key_value_heads=12, intermediate_size=3072,
                      tie_word_embeddings=True, vocab_size=50257, length=256, batch=4),
    "gpt2-6x384-50k": dict(architecture="gpt2", hidden_size=384, num_hidden_layers=6,
                           num_attention_heads=6, num_key_value_heads=6, intermediate_size=1536,
                           tie_word_embeddings=True, vocab_size=50257, length=256, batch=8),
    "llama-8x512-2k": dict(architecture="llama", hidden_size=512, num_hidden_layers=8,
                           num_attention_heads=8, num_key_value_heads=8, intermediate_size=1408,
                           tie_word_embeddings=False, length=2048, batch=1),
    "gpt2-6x384": dict(architecture="gpt2", hidden_size=384, num_hidden_layers=6,
                       num_attention_heads=6, num_key_value_heads=6, intermediate_size=1536,
                       tie_word_embeddings=True, length=256, batch=8),
}
# To see that everything runs; its times say nothing.
TINY = dict(vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, intermediate_size=96, length=32, batch=2)
# PyTorch's time over Echelon's: with AVX2, and with AVX-512.
WANTED = {"gpt2-124m": (1.15, 1.2), "gpt2-6x384-50k": (1.15, 1.25), "llama-8x512-2k": (1.12, 1.3)}
WANTED_OF_DRAWN = (1.05, 1.15)
WANTED_OF_DRAWN_MEDIAN = (1.12, 1.15)
THREADS = 2

# ---- one run each ----


def shape_of(bench, name):
    return SHAPES[name] | TINY if bench.quick else SHAPES[name]


def step_keys(shape, folder, steps, micro_batches=1):
    """Words for steps of so many micro-batches of the shape's batch."""
    return common.shape_keys(shape, folder) + [
        f"training.global_batch_size={shape['batch'] * micro_batches}",
        f"training.micro_batch_size={shape['batch']}", f"training.steps={steps}",
        "optimizer.schedule=constant", "checkpoint.every=1000000"]


def run_echelon(bench, keys, ranks=1, threads=THREADS):
    """Returns {"seconds", "losses", "parameters"}, as torch_step.run does."""
    run = bench.folder / f"run-{time.monotonic_ns()}"
    comm = "mpi" if ranks > 1 else "local"
    seconds, count = common.train_echelon(bench.echelon, ranks, threads,
                                          [*keys, f"parallel.comm={comm}"], run, bench.folder)
    losses = [line["loss"] for line in common.read_metrics(run)]
    return dict(seconds=seconds, losses=losses, parameters=count)


# ---- the comparison ----


class Sides:
    """Names, how each is run, and what was seen of it. alike: all train the same model."""

    def __init__(self, bench, runs, alike=True):
        self.bench, self.runs, self.alike = bench, runs, alike
        self.seconds = {name: [] for name in runs}
        self.first_losses, self.parameters = {}, {}

    def take_turns(self):
        for _ in range(self.bench.rounds):
            for name, run in self.runs.items():
                seen = run()
                self.seconds[name] += seen["seconds"][self.bench.warmup:]
                self.first_losses.setdefault(name, seen["losses"][0])
                self.parameters[name] = seen["parameters"]
        if self.alike:
            self.check()

    def check(self):
        """All train a model of the same kind: before the first step every id is about as likely as
        any other, so the losses of different random weights and ids are close."""
        assert len(set(self.parameters.values())) == 1, f"different models: {self.parameters}"
        losses = self.first_losses.values()
        assert max(losses) / min(losses) < 1.05, f"different models: {self.first_losses}"

    def median(self, name):
        return statistics.median(self.seconds[name])

    def show(self, tokens, first):
        """A table; the last column is throughput of the side `first` over each."""
        rows = [(name, common.spread(seconds), f"{tokens / self.median(name):,.0f}",
                 f"{self.first_losses[name]:.3f}", f"{self.median(name) / self.median(first):.3f}")
                for name, seconds in self.seconds.items()]
        report.table(("", "ms a step [quartiles]", "tokens/s", "first loss",
                      f"time over {first}'s"), rows)


def choose(bench, shape, compute="fp32"):
    """The fastest eager variant and the fastest compiled one."""
    names = bench.variants or torch_step.variants(bench.quick)
    kinds = [[name for name in names if bool(torch_step.VARIANTS[name]["compiled"]) == compiled]
             for compiled in (False, True)]
    return [fastest(bench, shape, kind, compute) for kind in kinds if kind]


def fastest(bench, shape, variants, compute):
    """By a short run of each."""
    took = {}
    for name in variants if len(variants) > 1 else ():
        seen = torch_step.run(shape, name, 1, THREADS, shape["batch"], 1, bench.warmup + 2,
                              bench.folder, compute)
        took[name] = min(seen["seconds"][bench.warmup:])
        print(f"tried PyTorch {name}: {1e3 * took[name]:.0f} ms", flush=True)
    return min(took, key=took.get) if took else variants[0]


def measure(bench, name, with_torch=True):
    """Returns the sides of a shape, after their turns; kept for other parts."""
    if name in bench.steps_of:
        return bench.steps_of[name]
    shape, steps = shape_of(bench, name), bench.warmup + bench.steps
    common.write_tokens(shape, bench.folder)
    keys = step_keys(shape, bench.folder, steps)
    runs = {"Echelon": lambda: run_echelon(bench, keys)}
    for variant in choose(bench, shape) if with_torch else ():
        runs[f"PyTorch {variant}"] = lambda variant=variant: torch_step.run(
            shape, variant, 1, THREADS, shape["batch"], 1, steps, bench.folder)
    sides = Sides(bench, runs)
    sides.take_turns()
    if with_torch:
        bench.steps_of[name] = sides
    return sides


def wanted(bench, by_isa):
    return by_isa["avx512" in bench.isa]


def run(bench):
    ratios = {}
    for name in bench.shapes_of(WANTED):
        shape = shape_of(bench, name)
        report.title(f"A training step against PyTorch: {name}, batch {shape['batch']} x "
                     f"{shape['length']}, vocabulary {common.vocabulary(shape)}, {THREADS} threads")
        sides = measure(bench, name)
        sides.show(shape["batch"] * shape["length"], "Echelon")
        best = min(sides.median(side) for side in sides.runs if side != "Echelon")
        ratios[name] = best / sides.median("Echelon")
        default = WANTED_OF_DRAWN if name in bench.drawn else (1, 1)
        bench.verdict(f"{name}: PyTorch's time over Echelon's", ratios[name],
                      wanted(bench, WANTED.get(name, default)))
    if bench.drawn:
        bench.verdict("drawn shapes: the median", statistics.median(ratios[n] for n in bench.drawn),
                      wanted(bench, WANTED_OF_DRAWN_MEDIAN))
