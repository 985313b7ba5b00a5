# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: compressed gradients over link.py's link of 1 Gbit. Two ranks have one
micro-batch of one sample, so that sending takes by far the most time.

The ranks send all gradients, gradients rounded to bf16, PowerSGD's factors of rank 4, or the
largest hundredth of each line of a gradient, with places. PowerSGD is compared with PyTorch's
powerSGD_hook of two processes over gloo on the same link. Embedding and head are sent as they are;
PyTorch's hook also compresses those. Local SGD sends all weights after every eighth step: its time
is the mean of eight. """
import statistics

import common
import link
import report
import torch_step
import train_step

RANK = 4
DENSITY = 0.01
WAYS = {"all": [], "bf16": ["precision.reduce=bf16"],
        "powersgd": ["parallel.compression=powersgd", f"parallel.compression_rank={RANK}"],
        "topk": ["parallel.compression=topk", f"parallel.compression_density={DENSITY}"]}
# Wanted rates of steps over that of all gradients, and over PyTorch's.
OVER_ALL = {"bf16": 1.5, "powersgd": 2.0}
OVER_TORCH = 1.3
VARIANT = "eager"
EVERY = 8
OVER_COMPUTING = 1.03  # of local SGD, at most


def run_torch(bench, slow, shape):
    seen = torch_step.run(
        shape,
        VARIANT,
        link.RANKS,
        1,
        1,
        1,
        bench.warmup + bench.steps,
        bench.folder,
        powersgd=RANK,
        place=slow.place,
    )
    return seen["seconds"][max(bench.warmup, 2):]  # its first two steps send all


def run_local_sgd(bench, slow):
    """Seconds of a step, of those up to a meeting and it."""
    run = link.Case(bench, 1, 1).run_joined(
        slow,
        [
            "parallel.strategy=local_sgd",
            f"parallel.sync_every={EVERY}",
            f"training.steps={2 * EVERY}",
            "training.validate_every=0",
        ],
    )
    return statistics.mean(line["step_seconds"] for line in common.read_metrics(run)[EVERY:])


def compare(bench, slow, cases, shape):
    torch, local_sgd = [], []
    for _ in range(bench.rounds):
        cases["all"].run_alone()
        for name, case in cases.items():
            case.run_joined(slow, WAYS[name])
        torch += run_torch(bench, slow, shape)
        local_sgd.append(run_local_sgd(bench, slow))
    for case in cases.values():
        case.alone = cases["all"].alone
    report.table(link.HEADS, [(name, *case.row()[1:]) for name, case in cases.items()])
    report.table(
        ("", "a step over the link, ms"),
        [
            ("PyTorch's powerSGD_hook", common.spread(torch)),
            (f"local SGD, every {EVERY}", common.spread(local_sgd)),
        ],
    )
    median = {name: statistics.median(case.together) for name, case in cases.items()}
    for name, wanted in OVER_ALL.items():
        bench.verdict(f"{name} over 1 Gbit: rate of steps over that of all gradients",
                      median["all"] / median[name], wanted)
    bench.verdict("powersgd over 1 Gbit: powerSGD_hook's time over Echelon's",
                  statistics.median(torch) / median["powersgd"], OVER_TORCH)
    bench.verdict(
        f"local SGD over 1 Gbit, every {EVERY} steps: over computing alone",
        statistics.median(local_sgd) / statistics.median(cases["all"].alone),
        OVER_COMPUTING,
        least=False,
    )


def run(bench):
    report.title(f"What is sent of gradients over a link of 1 Gbit: {link.SHAPE}")
    shape = train_step.shape_of(bench, link.SHAPE)
    common.write_tokens(shape, bench.folder)
    (bench.folder / "run.yaml").write_text("log: {every: 1000}\n")
    cases = {name: link.Case(bench, 1, 1) for name in WAYS}
    link.with_link(bench, "compressed gradients over a link of 1 Gbit",
                   lambda slow: compare(bench, slow, cases, shape))
