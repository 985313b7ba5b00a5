# SPDX-License-Identifier: Apache-2.0
"""Holds what `echelon plan --simulate` predicts of a step against what it takes: GPT-2, 384 wide,
fp32.

One rank, two data-parallel ranks, two pipeline stages, a thread each, over MPI. In every round
`echelon profile` measures blocks, with as many ranks; the plan predicts a step from that, and a run
is timed (step_seconds of its metrics.jsonl). Wanted on an idle machine: predictions within 10% of
the measured medians. A profile says whether the machine was busy with something else; such rounds
are shown, but marked. """
import json
import os
import pathlib
import statistics
import tempfile

import common

SHAPE = dict(architecture="gpt2", hidden_size=384, num_hidden_layers=6, num_attention_heads=6,
             num_key_value_heads=6, intermediate_size=1536, tie_word_embeddings=False, length=256)
MICRO_BATCH_SIZE, MICRO_BATCHES = 2, 8
# Layout: (ranks, keys).
LAYOUTS = {
    "one rank": (1, []),
    "data 2": (2, ["parallel.data=2"]),
    "pipeline 2": (2, ["parallel.pipeline=2", "parallel.schedule=1f1b", "parallel.partition=auto"]),
}


def measure(options, folder, name):
    """Returns (predicted seconds, seconds of every step, profile)."""
    ranks, grid = LAYOUTS[name]
    profile = folder / "profile.json"
    keys = [*common.shape_keys(SHAPE, folder), *grid, "parallel.comm=mpi",
            f"training.micro_batch_size={MICRO_BATCH_SIZE}",
            f"training.global_batch_size={MICRO_BATCH_SIZE * MICRO_BATCHES}",
            f"training.steps={1 + options.steps}"]
    run = folder / f"run-{len(list(folder.iterdir()))}"

    def call(command, *more):
        return common.call_echelon(options.echelon, command, ranks, 1, [*keys, *more], folder)

    call(["profile", "--out", profile], f"log.directory={folder}/profile")
    use = f"parallel.profile={profile}"
    printed, _ = call(["plan", "--simulate", "--json"], use, f"log.directory={run}")
    simulation = json.loads(printed)["simulation"]
    assert simulation["unit"] == "seconds", "the plan knows no profile"
    steps, _ = common.train_echelon(options.echelon, ranks, 1, [*keys, use], run, folder)
    return simulation["step_time"], steps[1:], json.loads(profile.read_text())


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--steps", type=int, default=6, help="timed per round (6)")
    parser.add_argument("--rounds", type=int, default=3, help="of each layout (3)")
    parser.add_argument("--layout", choices=LAYOUTS, action="append", help="only this one")
    options = common.parse(parser)
    print(f"load before: {os.getloadavg()[0]:.2f}")
    print(
        "layout      predicted ms   measured ms [quartiles]     predicted / measured   spread  "
        "processor"
    )
    ratios = {name: [] for name in options.layout or LAYOUTS}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        common.write_tokens(SHAPE, folder)
        for _ in range(options.rounds):
            for name, seen in ratios.items():
                predicted, steps, profile = measure(options, folder, name)
                seen.append(predicted / statistics.median(steps))
                print(f"{name:10} {1e3 * predicted:13.1f} {common.spread(steps)} {seen[-1]:22.3f} "
                      f"{100 * profile['spread']:7.0f}% {100 * profile['processor_share']:9.0f}%"
                      f"{'  busy' if profile['busy'] else ''}", flush=True)
    for name, seen in ratios.items():
        print(f"{name:10} median of {len(seen)} rounds: {statistics.median(seen):.3f}")


main()
