# SPDX-License-Identifier: Apache-2.0
"""Compares the step time that `echelon plan` predicts with the measured one, for ten layouts on
two cores: a rank of one thread on each, fp32.

In each round `echelon bench --cluster` writes this machine's cluster file, from which `plan
--cluster` predicts all layouts; then each is trained for a few steps, and its median step_seconds
counts. With --profile the prediction comes from `echelon profile` of each layout instead. Wanted on
an idle machine: within 10 %. Beside other programs, start it at a real-time priority: --start-with
"chrt -r 10"."""
import argparse
import array
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile

WANTED = 0.1
TOKENS = 1 << 18
VOCABULARY = 2048
MICRO_BATCH_SIZE, MICRO_BATCHES = 2, 8
SHAPE = dict(architecture="gpt2", hidden_size=384, num_hidden_layers=6, num_attention_heads=6,
             num_key_value_heads=6, intermediate_size=1536, tie_word_embeddings="false")
EXPERTS = dict(architecture="mixtral", hidden_size=384, num_hidden_layers=6, num_attention_heads=6,
               num_key_value_heads=6, intermediate_size=256, tie_word_embeddings="false",
               num_local_experts=4, num_experts_per_tok=4)
# Random weights send most tokens to the same experts, and a plan takes loads to be equal.
UNEVEN = EXPERTS | dict(intermediate_size=512, num_experts_per_tok=2)
# Layout: (model, ranks, keys).
LAYOUTS = {
    "one rank": (SHAPE, 1, {}),
    "data 2": (SHAPE, 2, {"parallel.data": 2}),
    "pipeline 2, gpipe": (SHAPE, 2, {"parallel.pipeline": 2, "parallel.schedule": "gpipe"}),
    "pipeline 2, 1f1b": (SHAPE, 2, {"parallel.pipeline": 2, "parallel.schedule": "1f1b"}),
    "tensor 2": (SHAPE, 2, {"parallel.tensor": 2}),
    "context 2": (SHAPE, 2, {"parallel.context": 2}),
    "ZeRO 3 of 2": (SHAPE, 2, {"parallel.data": 2, "parallel.zero": 3}),
    "recomputation": (SHAPE, 2, {"parallel.data": 2, "memory.recompute": "full"}),
    "experts 2": (EXPERTS, 2, {"parallel.data": 2, "parallel.expert": 2}),
    "experts 2, uneven": (UNEVEN, 2, {"parallel.data": 2, "parallel.expert": 2}),
}


def call(options, *words):
    """Runs the program on the cores 0 and 1. Returns what it printed."""
    done = subprocess.run(["taskset", "-c", "0,1", *options.start_with.split(), options.echelon,
                           *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def write_run(folder):
    """A run file of what all layouts share, and random tokens."""
    ids = array.array("H", (random.Random(1).randrange(VOCABULARY) for _ in range(TOKENS)))
    (folder / "tokens.bin").write_bytes(ids.tobytes())
    (folder / "run.yaml").write_text(
        f"model: {{vocab_size: {VOCABULARY}}}\n"
        f"data: {{train: {folder}/tokens.bin, sequence_length: 256}}\n"
        f"training: {{steps: 1000, micro_batch_size: {MICRO_BATCH_SIZE}, check_every: 0, "
        f"global_batch_size: {MICRO_BATCH_SIZE * MICRO_BATCHES}}}\n"
        "optimizer: {learning_rate: 1e-3}\n"
        "parallel: {comm: local, threads: 1}\n"
        "log: {every: 1000}\n")


def keys_of(name):
    shape, ranks, keys = LAYOUTS[name]
    words = [f"model.{key}={value}" for key, value in shape.items()]
    return ["--ranks", ranks, *words, *(f"{key}={value}" for key, value in keys.items())]


def predict(options, folder, name):
    """Returns (predicted seconds, spread, parts)."""
    words = [folder / "run.yaml", *keys_of(name)]
    if options.profile:
        profile = folder / "profile.json"
        call(options, "profile", *words, "--out", profile, f"log.directory={folder}/profile")
        printed = call(options, "plan", *words, "--simulate", "--json",
                       f"parallel.profile={profile}")
        return json.loads(printed)["simulation"]["step_time"], 0, {}
    printed = call(options, "plan", *words, "--cluster", options.cluster, "--json")
    seen = json.loads(printed)["cluster"]
    return seen["step_time"], seen["high"] / seen["step_time"] - 1, seen["parts"]


def measure(options, folder, name):
    """Returns the seconds of every step but the first."""
    run = folder / f"run-{len(list(folder.iterdir()))}"
    call(options, "train", folder / "run.yaml", *keys_of(name), f"log.directory={run}",
         f"training.steps={1 + options.steps}")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["step_seconds"] for line in lines if "step_seconds" in line][1:]


def run_round(options, folder, ratios):
    if not options.profile and not options.given:
        call(options, "bench", "--cluster", options.cluster, "--ranks", 2, "--threads", 1)
    for name, seen in ratios.items():
        seconds, _, parts = predict(options, folder, name)
        steps = measure(options, folder, name)
        low, _, high = statistics.quantiles(steps, n=4, method="inclusive")
        measured = statistics.median(steps)
        seen.append(seconds / measured)
        print(f"{name:18} {1e3 * seconds:12.1f} {1e3 * measured:12.1f} [{1e3 * low:.1f} "
              f"{1e3 * high:.1f}] {100 * (seconds / measured - 1):+7.1f} %", flush=True)
        if options.parts:
            print("".join(f"    {1e3 * seconds * share:8.1f} ms {part}\n"
                          for part, share in parts.items() if share > 5e-4), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    default = pathlib.Path(__file__).resolve().parent.parent / "build/release/echelon"
    parser.add_argument("--echelon", default=default, help="the program (build/release/echelon)")
    parser.add_argument("--start-with", default="", metavar="WORDS", help="before every program")
    parser.add_argument("--steps", type=int, default=6, help="timed in each round (6)")
    parser.add_argument("--rounds", type=int, default=3, help="of all layouts (3)")
    parser.add_argument("--layout", choices=LAYOUTS, action="append", help="only this one")
    parser.add_argument("--profile", action="store_true", help="predicts from profiles")
    parser.add_argument("--cluster", help="a cluster file to predict from; measured otherwise")
    parser.add_argument("--parts", action="store_true", help="where the predicted time goes")
    options = parser.parse_args()
    options.given = options.cluster is not None
    ratios = {name: [] for name in options.layout or LAYOUTS}
    print(f"load before: {os.getloadavg()[0]:.2f}")
    print("layout             predicted ms  measured ms [quartiles]      error")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        options.cluster = options.cluster or folder / "cluster.yaml"
        write_run(folder)
        for _ in range(options.rounds):
            run_round(options, folder, ratios)
    for name, seen in ratios.items():
        error = statistics.median(seen) - 1
        print(f"{name:18} median of {len(seen)} rounds: {100 * error:+.1f} %"
              f"{'' if abs(error) <= WANTED else ', missed'}")


main()
