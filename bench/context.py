# SPDX-License-Identifier: Apache-2.0
"""Long sequences on two cores: GPT-2, 4 layers, 384 wide, 8,192 tokens, fp32. Memory and time of
one training step of one rank of two threads, of one that takes each sequence in 4 pieces, and of
two context-parallel ranks of one thread, around the ring and by Ulysses, over MPI.

Memory is `echelon plan`'s, by kind, of the rank with most; what a run then needs (peak_bytes of its
metrics.jsonl) must be the plan's arena. Times are taken in turns. All layouts must have the same
losses. Wanted of context parallelism: at most 0.55 of the one rank's activations.

Needs an otherwise idle machine.
"""
import json
import os
import pathlib
import statistics
import tempfile
import time

import common

FULL = dict(architecture="gpt2", hidden_size=384, num_hidden_layers=4, num_attention_heads=6,
            num_key_value_heads=6, intermediate_size=1536, tie_word_embeddings=True, length=8192)
# To see that everything runs; its times say nothing.
TINY = FULL | dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=2,
                   intermediate_size=256, length=128)
# Name: ranks, threads, keys.
CASES = {
    "one rank": (1, 2, ["parallel.comm=local"]),
    "one rank, 4 pieces": (1, 2, ["parallel.comm=local", "memory.sequence_chunks=4"]),
    "context 2, ring": (2, 1, ["parallel.context=2", "parallel.context_method=ring"]),
    "context 2, ulysses": (2, 1, ["parallel.context=2", "parallel.context_method=ulysses"]),
}
# What belongs to activations, of the kinds of memory.
ACTIVATIONS = ("activations", "activation gradients", "carried")


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.shape = TINY if options.tiny else FULL
        self.seconds, self.losses, self.memory = {}, {}, {}

    def keys(self, case):
        return common.shape_keys(self.shape, self.folder) + [
            "training.global_batch_size=1", "training.micro_batch_size=1",
            f"training.steps={self.options.warmup + self.options.steps}",
            "optimizer.schedule=constant", "checkpoint.every=1000000", *CASES[case][2]]

    def plan(self, case):
        """Memory of every rank, by the plan that it runs."""
        ranks, threads, _ = CASES[case]
        printed, _ = common.call_echelon(self.options.echelon, ["plan", "--json"], ranks, threads,
                                         [*self.keys(case), f"log.directory={self.folder}/plan"],
                                         self.folder)
        plan = json.loads(printed)
        return [plan["plans"][rank["plan"]]["memory"] for rank in plan["ranks"]]

    def turn(self, case):
        ranks, threads, _ = CASES[case]
        run = self.folder / f"run-{time.monotonic_ns()}"
        seconds, _ = common.train_echelon(self.options.echelon, ranks, threads, self.keys(case),
                                          run, self.folder)
        lines = common.read_metrics(run)
        arena = self.memory[case][0]["arena_bytes"]
        assert {line["peak_bytes"] for line in lines} == {arena}, "the plan's arena is another"
        self.seconds.setdefault(case, []).extend(seconds[self.options.warmup:])
        self.losses.setdefault(case, [line["loss"] for line in lines])

    def run(self):
        common.write_tokens(self.shape, self.folder, 4 * self.shape["length"])
        self.memory = {case: self.plan(case) for case in CASES}
        for number in range(self.options.rounds):
            for case in CASES:
                self.turn(case)
            print(f"round {number + 1} done; load {os.getloadavg()[0]:.2f}", flush=True)

    def check_losses(self):
        first = self.losses["one rank"][:2]
        worst = max(abs(a - b) / b for losses in self.losses.values()
                    for a, b in zip(losses, first))
        print(f"losses of the first steps: {', '.join(f'{x:.6f}' for x in first)}; "
              f"largest relative difference {worst:.1e}")
        assert worst < 1e-4, f"the layouts differ: {self.losses}"

    def largest(self, case, kinds):
        return max(sum(memory["peak_bytes"][kind] for kind in kinds)
                   for memory in self.memory[case])

    def show(self):
        def transient(case):
            return max(memory["arena_bytes"] - memory["persistent_bytes"]
                       for memory in self.memory[case])
        alone, mib = "one rank", 1 << 20
        step = {case: statistics.median(seconds) for case, seconds in self.seconds.items()}
        print("MiB of the rank with most, and over the one rank's\n"
              "case  activations  with their gradients and what is carried  arena without weights "
              "and states  ms/step [quartiles]  over the one rank's")
        for case in CASES:
            figures = [(self.largest(case, kinds), self.largest(alone, kinds))
                       for kinds in (ACTIVATIONS[:1], ACTIVATIONS)]
            figures.append((transient(case), transient(alone)))
            text = "  ".join(f"{bytes / mib:7.1f} {bytes / whole:5.3f}" for bytes, whole in figures)
            print(f"{case:28} {text}  {common.spread(self.seconds[case])} "
                  f"{step[case] / step[alone]:6.3f}")


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--steps", type=int, default=2, help="timed per round (2)")
    parser.add_argument("--warmup", type=int, default=1, help="steps before these (1)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (3)")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to see that all runs")
    options = common.parse(parser)
    print(f"load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, pathlib.Path(scratch))
        bench.run()
        bench.check_losses()
        bench.show()


main()
