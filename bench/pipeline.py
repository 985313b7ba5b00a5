# SPDX-License-Identifier: Apache-2.0
"""Times a pipeline of two stages, one core each: GPT-2, 12 layers, 384 wide, fp32, over MPI.

First, does Echelon run as its plan says? In every round `echelon profile` measures blocks, `echelon
plan --simulate` predicts a step and its bubble from that, and then a run is timed. The time is
step_seconds of its metrics.jsonl, and the bubble is the share of both ranks' time without F, B or W
in its trace. Wanted: throughput at least 0.95 of the prediction, bubbles within 5 points.

Then PyTorch's torch.distributed.pipelining over gloo: the same model, micro-batches and schedule,
fused attention and AdamW, the norm clipped over both stages, cut where a short trial is fastest.
Both programs take turns. Wanted: PyTorch's time at least 1.3 of Echelon's.

Needs torch and numpy, and an otherwise idle machine.
"""
import json
import os
import pathlib
import statistics
import tempfile
import time

import common
from common import nn, torch

FULL = dict(architecture="gpt2", hidden_size=384, num_hidden_layers=12, num_attention_heads=6,
            num_key_value_heads=6, intermediate_size=1536, tie_word_embeddings=False, length=256)
# To see that everything runs; its times say nothing.
TINY = FULL | dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=2,
                   num_key_value_heads=2, intermediate_size=256, length=32)
RANKS = 2
# Schedule: keys besides parallel.schedule.
SCHEDULES = {"gpipe": [], "1f1b": [], "zero-bubble": [], "zero-bubble-v": [], "pipedream-2bw": [],
             "interleaved": ["parallel.virtual_stages=2"]}
ASYNCHRONOUS = ("pipedream-2bw",)
IN_PYTORCH = ("gpipe", "1f1b")
WORK = ("F", "B", "W") # what is no bubble

# ---- PyTorch ----


def clip(module):
    """By the norm over all stages."""
    gradients = [parameter.grad for parameter in module.parameters()]
    square = nn.utils.get_total_norm(gradients) ** 2
    torch.distributed.all_reduce(square)
    nn.utils.clip_grads_with_norm_(module.parameters(), 1.0, square.sqrt())


def torch_rank(job):
    """A stage's own process: trains; rank 0 prints [seconds of every step, parameters] as JSON."""
    from torch.distributed import pipelining
    shape, rank, micro_batches = job["shape"], job["rank"], job["micro_batches"]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    common.meet(job, rank, RANKS)
    bounds = (0, job["cut"], shape["num_hidden_layers"])
    part = common.Part(shape, bounds[rank], bounds[rank + 1])
    optimizer = common.adamw(part)
    if job["compiled"]:
        part.compile()
    stage = pipelining.PipelineStage(part, rank, RANKS, torch.device("cpu"))
    make = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[job["schedule"]]
    # Scaled here and not by the schedule, which would touch all gradients once more.
    schedule = make(stage, micro_batches, scale_grads=False,
                    loss_fn=lambda x, targets: common.mean_loss(x, targets) / micro_batches)
    samples = micro_batches * job["micro_batch_size"]
    ids = torch.randint(common.VOCABULARY, (samples, shape["length"] + 1),
                        generator=torch.Generator().manual_seed(1))
    seconds, losses = [], []
    for _ in range(job["warmup"] + job["steps"]):
        start = time.perf_counter()
        losses.clear()
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(ids[:, :-1], return_outputs=False)
        else:
            schedule.step(target=ids[:, 1:], losses=losses, return_outputs=False)
            sum(losses).item()
        clip(part)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    count = torch.tensor(common.count_parameters(part))
    torch.distributed.all_reduce(count)
    if rank == 0:
        print(json.dumps([seconds, count.item()]))
    torch.distributed.destroy_process_group()


# ---- Echelon ----


def simulate(bench, keys):
    """Returns (predicted seconds of a step, predicted bubble, layers of each virtual stage)."""
    printed, _ = bench.echelon(["plan", "--simulate", "--json"], keys)
    plan = json.loads(printed)
    simulation = plan["simulation"]
    assert simulation["unit"] == "seconds", "the plan knows no profile"
    pieces = sorted(blocks for rank in plan["ranks"] for blocks in rank["blocks"])
    layers = [end - first for first, end in pieces]
    layers[0] -= 1  # the embedding is the first block,
    layers[-1] -= 1  # the head the last
    return simulation["step_time"], simulation["bubble"], layers


def read_trace(run):
    """Bubble of every list that was recorded: {its first step: share}."""
    begins, ends, work = {}, {}, {}
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    steps = [event for event in events if event["ph"] == "X"]
    assert len({step["pid"] for step in steps}) == RANKS
    for step in steps:
        key, begin, end = step["args"]["list"], step["ts"], step["ts"] + step["dur"]
        begins[key] = min(begin, begins.get(key, begin))
        ends[key] = max(end, ends.get(key, end))
        work[key] = work.get(key, 0) + (step["dur"] if step["cat"] in WORK else 0)
    return {key: 1 - work[key] / (RANKS * (ends[key] - begins[key])) for key in begins}


# ---- the comparison ----


class Case:
    """A schedule with a number of micro-batches: what was seen in all rounds."""

    def __init__(self, micro_batches, schedule):
        self.micro_batches, self.schedule = micro_batches, schedule
        self.steps, self.torch_steps, self.cuts = [], [], []
        self.predicted, self.ratios, self.bubbles, self.predicted_bubbles = [], [], [], []


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder, self.counts = options, folder, set()
        self.shape = TINY if options.tiny else FULL
        self.profile = folder / "profile.json"
        self.cut, self.compiled = None, options.compile

    def echelon(self, command, keys):
        return common.call_echelon(self.options.echelon, command, RANKS, 1, keys, self.folder)

    def keys(self, micro_batches, schedule):
        b, timed, warmup = self.options.micro_batch_size, self.options.steps, self.options.warmup
        if schedule in ASYNCHRONOUS:  # a span to warm up, and one that is timed
            warmup = timed
        keys = common.shape_keys(self.shape, self.folder) + SCHEDULES[schedule]
        keys += [
            f"training.micro_batch_size={b}",
            f"training.global_batch_size={b * micro_batches}",
            f"training.steps={warmup + timed}",
            "parallel.comm=mpi",
            f"parallel.pipeline={RANKS}",
            "parallel.partition=auto",
            f"parallel.profile={self.profile}",
            f"parallel.schedule={schedule}",
        ]
        if schedule in ASYNCHRONOUS:
            keys.append(f"parallel.flush_every={timed}")
        return keys, warmup

    def measure_blocks(self):
        keys, _ = self.keys(min(self.options.micro_batches), "1f1b")
        self.echelon(["profile", "--out", self.profile],
                     [*keys, f"log.directory={self.folder}/profile"])

    def run_echelon(self, case):
        keys, warmup = self.keys(case.micro_batches, case.schedule)
        run = self.folder / f"run-{time.monotonic_ns()}"
        predicted, bubble, cut = simulate(self, [*keys, f"log.directory={run}"])
        keys += ["log.trace=true", f"log.trace_steps={warmup + self.options.steps}"]
        steps, count = common.train_echelon(self.options.echelon, RANKS, 1, keys, run, self.folder)
        self.counts.add(count)
        timed = steps[warmup:]
        case.steps += timed
        case.cuts.append(cut)
        case.predicted.append(predicted)
        case.ratios.append(predicted / statistics.median(timed))
        case.predicted_bubbles.append(bubble)
        case.bubbles += [share for step, share in read_trace(run).items() if step >= warmup]

    def run_torch(self, micro_batches, schedule, cut, warmup, steps):
        job = dict(shape=self.shape, micro_batches=micro_batches, schedule=schedule, cut=cut,
                   micro_batch_size=self.options.micro_batch_size, warmup=warmup, steps=steps,
                   compiled=self.compiled)
        seconds, count = common.run_torch(__file__, RANKS, 1, job, self.folder)
        self.counts.add(count)
        return seconds[warmup:]

    def choose_torch_cut(self, ours):
        """Half, and where Echelon cuts: what is faster."""
        half = self.shape["num_hidden_layers"] // 2
        cuts, trial = sorted({half, ours}), {}
        for cut in cuts if len(cuts) > 1 else []:
            steps = self.run_torch(min(self.options.micro_batches), "1f1b", cut, 1, 2)
            trial[cut] = statistics.median(steps)
        self.cut = min(trial, key=trial.get) if trial else half
        print(f"PyTorch's first stage has {self.cut} layers" +
              "".join(f"; {cut}: {1e3 * t:.1f} ms" for cut, t in trial.items()), flush=True)

    def turn(self, case):
        """Both programs, one after the other."""
        self.run_echelon(case)
        if case.schedule not in IN_PYTORCH or self.options.no_torch:
            return
        if self.cut is None:
            self.choose_torch_cut(case.cuts[0][0])
        # It compiles again in the second step, sometimes in the third.
        warmup = max(self.options.warmup, 3) if self.compiled else self.options.warmup
        case.torch_steps += self.run_torch(case.micro_batches, case.schedule, self.cut, warmup,
                                           self.options.steps)

    def run(self):
        cases = [Case(m, schedule) for m in self.options.micro_batches
                 for schedule in self.options.schedule or SCHEDULES]
        for round_number in range(self.options.rounds):
            self.measure_blocks()
            for case in cases:
                self.turn(case)
                print(f"round {round_number + 1}: {case.micro_batches} x {case.schedule}: "
                      f"{case.ratios[-1]:.3f} of the prediction", flush=True)
        assert len(self.counts) == 1, f"different models: {self.counts} parameters"
        return cases


def print_predictions(cases):
    print("\nmicro-batches  schedule  layers  predicted ms  measured ms [quartiles]  "
          "throughput over predicted [lowest]  bubble: predicted  measured  points between")
    for case in cases:
        cuts = " or ".join(sorted({"/".join(map(str, cut)) for cut in case.cuts}))
        middle = statistics.median
        plan, real = middle(case.predicted_bubbles), middle(case.bubbles)
        print(f"{case.micro_batches:3} {case.schedule:14} {cuts:10} "
              f"{1e3 * middle(case.predicted):8.1f} {common.spread(case.steps)} "
              f"{middle(case.ratios):7.3f} [{min(case.ratios):6.3f}] "
              f"{100 * plan:6.1f}% {100 * real:6.1f}% {100 * (real - plan):+6.1f}")


def print_comparison(cases):
    print("\nmicro-batches  schedule  Echelon ms [quartiles]  PyTorch ms [quartiles]  "
          "PyTorch / Echelon")
    for case in cases:
        if case.torch_steps:
            ratio = statistics.median(case.torch_steps) / statistics.median(case.steps)
            print(f"{case.micro_batches:3} {case.schedule:14} {common.spread(case.steps)} "
                  f"{common.spread(case.torch_steps)} {ratio:7.2f}")


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--schedule", choices=SCHEDULES, action="append", help="only this one")
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[8, 32],
                        help="of a step (8 32)")
    parser.add_argument("--micro-batch-size", type=int, default=2, help="samples (2)")
    parser.add_argument("--steps", type=int, default=4, help="timed per round (4)")
    parser.add_argument("--warmup", type=int, default=1, help="steps before these (1)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each program (2)")
    parser.add_argument("--compile", action="store_true", help="PyTorch: torch.compile")
    parser.add_argument("--no-torch", action="store_true", help="Echelon alone")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to see that all runs")
    options = common.parse(parser)
    if options.rank:
        torch_rank(json.loads(options.rank))
        return
    print(f"PyTorch {torch.__version__}; load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, pathlib.Path(scratch))
        common.write_tokens(bench.shape, bench.folder)
        cases = bench.run()
    print_predictions(cases)
    print_comparison(cases)


main()
