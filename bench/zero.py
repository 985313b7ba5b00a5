# SPDX-License-Identifier: Apache-2.0
"""Two parts of speed.py: ZeRO's stages on two ranks of one thread each.

zero: GPT-2 124M, four micro-batches, ranks as threads of one process. Every stage against stage 0,
and against PyTorch's FSDP2 (torch.distributed.fsdp.fully_shard) of two processes over gloo: a group
of parameters a layer and one of all the rest, gradients reduce-scattered in every micro-batch.
FSDP2 shards weights, as stage 3; with reshard_after_forward=False it has them whole from a
micro-batch's forward to its backward, which is nearest to stage 2.

zero-link: the stages of link.py's model over its link of 1 Gbit, each against the longer of
computing and sending. Stage s of N ranks and m micro-batches sends a number of elements that is (N
- 1) / N times 2, 2, m + 1 and 3 m times the parameters'; with zero_keep m + 1. """
import shutil
import time

import common
import link
import report
import torch_step
import train_step

SHAPE, MICRO_BATCHES, RANKS = "gpt2-124m", 4, 2
# Keys of each stage, and its wanted throughput over stage 0's.
STAGES = {"1": (["parallel.zero=1"], 0.97), "2": (["parallel.zero=2"], 0.97),
          "3": (["parallel.zero=3"], 0.85),
          "3, kept": (["parallel.zero=3", "parallel.zero_keep=true"], 0.95)}
# Wanted: FSDP2's time over that of the stage that holds as much.
OVER_FSDP = 1.3
FSDP = {"FSDP2, weights kept": ("2", False), "FSDP2": ("3", True)}
VARIANTS = ["eager"]  # of PyTorch, unless others are asked for


def run_echelon(bench, keys):
    run = bench.folder / f"run-{time.monotonic_ns()}"
    seconds, count = common.train_echelon(
        bench.echelon, RANKS, 1, [*keys, "parallel.comm=local"], run, bench.folder
    )
    losses = [line["loss"] for line in common.read_metrics(run)]
    shutil.rmtree(run)  # a checkpoint of 1.4 GiB is in it
    return dict(seconds=seconds, losses=losses, parameters=count)


def sides_of(bench, shape, steps):
    """{name: what runs it}, in the order of their turns."""
    keys = train_step.step_keys(shape | dict(batch=shape["batch"] // RANKS), bench.folder, steps,
                                RANKS * MICRO_BATCHES)
    runs = {"stage 0": lambda: run_echelon(bench, keys)}
    for name, (more, _) in STAGES.items():
        runs[f"stage {name}"] = lambda more=more: run_echelon(bench, [*keys, *more])
    for name, (_, reshard) in list(FSDP.items())[:1 if bench.quick else None]:
        for side, variant in fsdp_sides(bench, name).items():
            runs[side] = lambda variant=variant, reshard=reshard: torch_step.run(
                shape, variant, RANKS, 1, shape["batch"] // RANKS, MICRO_BATCHES, steps,
                bench.folder, reshard=reshard)
    return runs


def fsdp_sides(bench, name):
    return {f"{name}, {variant}": variant for variant in bench.variants or VARIANTS}


def run(bench):
    shape = train_step.shape_of(bench, SHAPE)
    tokens = MICRO_BATCHES * shape["batch"] * shape["length"]
    report.title(f"ZeRO on two ranks of one thread: {SHAPE}, {MICRO_BATCHES} micro-batches, "
                 f"{tokens:,} tokens a step")
    common.write_tokens(shape, bench.folder)
    sides = train_step.Sides(bench, sides_of(bench, shape, bench.warmup + bench.steps))
    sides.take_turns()
    sides.show(tokens, "stage 0")
    for name, (_, wanted) in STAGES.items():
        bench.verdict(f"ZeRO stage {name}: throughput over stage 0",
                      sides.median("stage 0") / sides.median(f"stage {name}"), wanted)
    for name, (stage, _) in FSDP.items():
        theirs = [sides.median(side) for side in fsdp_sides(bench, name) if side in sides.runs]
        if stage not in STAGES or not theirs:
            continue
        bench.verdict(f"ZeRO stage {stage}: {name}'s time over Echelon's",
                      min(theirs) / sides.median(f"stage {stage}"), OVER_FSDP)


# ---- over a slow link ----


def compare(bench, slow, cases):
    for _ in range(bench.rounds):
        cases["0"].run_alone()
        for name, case in cases.items():
            case.run_joined(slow, STAGES[name][0] if name in STAGES else ())
    for case in cases.values():
        case.alone = cases["0"].alone
    report.table(link.HEADS,
                 [(f"stage {name}", *case.row()[1:]) for name, case in cases.items()])
    for name, case in cases.items():
        bench.verdict(
            f"ZeRO stage {name} over 1 Gbit: step over the longer of computing and sending",
            case.over(),
            link.WANTED,
            least=False,
        )
        if bench.quick or case.over() > link.WANTED:
            link.show_overlap(
                case.run_joined(slow, [*STAGES.get(name, ([],))[0], "log.trace=true"])
            )


def run_link(bench):
    report.title(f"ZeRO's stages over a link of 1 Gbit: {link.SHAPE}")
    shape = train_step.shape_of(bench, link.SHAPE)
    common.write_tokens(shape, bench.folder)
    (bench.folder / "run.yaml").write_text("log: {every: 1000}\n")
    cases = {name: link.Case(bench, shape["batch"] // RANKS, link.MICRO_BATCHES)
             for name in ("0", *STAGES)}
    link.with_link(bench, "ZeRO's stages over a link of 1 Gbit",
                   lambda slow: compare(bench, slow, cases))
