# SPDX-License-Identifier: Apache-2.0
"""Is a search's best layout near the best one that random draws find?

    python bench/random_layouts.py ECHELON RUN.yaml CLUSTER.yaml RANKS SECONDS [SEED]

Searches once, then plans random layouts by `echelon plan` until so many seconds have passed, and
prints the fastest one with its time over the search's. Draws are of more layouts than a search has:
any micro-batch that divides a replica's samples up to 32, any number of virtual stages, ZeRO 2 and
3 with a pipeline, sequence parallelism on and off, gpipe, and context ranks of short sequences.
Exits with 1 if a layout is more than 2 % faster than the search's. The times are simulated, so they
depend on no machine; only the number of draws does.
"""
import json
import random
import subprocess
import sys
import time

SCHEDULES = ["1f1b", "interleaved", "zero-bubble", "zero-bubble-v", "gpipe"]
FASTER = 1.02


def plan(echelon, run, cluster, ranks, words):
    """The JSON of a plan; None: the layout is refused, or does not fit."""
    said = subprocess.run([echelon, "plan", run, "--cluster", cluster, "--ranks", str(ranks),
                           "--json", *words], capture_output=True, check=False)
    return json.loads(said.stdout) if said.returncode == 0 else None


def draw(ranks, layers, batch):
    """Words of a layout whose degrees divide; the planner may still refuse it."""
    def divisor(whole, most):
        return random.choice([i for i in range(1, min(whole, most) + 1) if whole % i == 0])

    pipeline = divisor(ranks, layers)
    tensor = divisor(ranks // pipeline, 16)
    context = random.choice([1, 1, 1, divisor(ranks // pipeline // tensor, 4)])
    data = ranks // pipeline // tensor // context
    if batch % data:
        return None
    schedule = random.choice(SCHEDULES) if pipeline > 1 else "1f1b"
    words = {"parallel.pipeline": pipeline, "parallel.tensor": tensor,
             "parallel.context": context, "parallel.schedule": schedule,
             "parallel.sequence": random.choice(["true", "false"]) if tensor > 1 else "false",
             "parallel.zero": random.randrange(4) if data > 1 else 0,
             "training.micro_batch_size": divisor(batch // data, 32),
             "memory.recompute": random.choice(["none", "selective", "full"]),
             "memory.offload_optimizer": random.choice(["none", "none", "none", "host"])}
    if schedule == "interleaved":
        words["parallel.virtual_stages"] = divisor(max(1, layers // pipeline), layers)
    return [f"{key}={value}" for key, value in words.items()]


def main():
    echelon, run, cluster, ranks, seconds = sys.argv[1:6]
    ranks, end = int(ranks), time.monotonic() + float(seconds)
    random.seed(int(sys.argv[6]) if len(sys.argv) > 6 else 45)
    found = json.loads(subprocess.run(
        [echelon, "plan", run, "--cluster", cluster, "--ranks", str(ranks), "--search", "--json"],
        capture_output=True, check=True).stdout)["candidates"][0]
    first = plan(echelon, run, cluster, ranks, [f"{k}={v}" for k, v in found["keys"].items()])
    layers = max(end for rank in first["ranks"] for _, end in rank["blocks"]) - 2
    batch = first["batch"]["global_batch_size"]
    print(f"search: {found['seconds']:.4g} s, {found['keys']}", flush=True)
    best, best_words, draws, planned = float("inf"), None, 0, 0
    while time.monotonic() < end:
        words = draw(ranks, layers, batch)
        if not words:
            continue
        draws += 1
        made = plan(echelon, run, cluster, ranks, words)
        if made and made.get("simulation"):
            planned += 1
            if made["cluster"]["step_time"] < best:
                best, best_words = made["cluster"]["step_time"], " ".join(words)
    print(f"random: {draws} drawn, {planned} fit; the fastest {best:.4g} s, "
          f"{best / found['seconds']:.3f} of the search's: {best_words}")
    return int(best * FASTER < found["seconds"])


if __name__ == "__main__":
    sys.exit(main())
