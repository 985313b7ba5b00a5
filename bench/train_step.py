# SPDX-License-Identifier: Apache-2.0
"""Times one training step (forward, backward, clipping, AdamW; fp32) of Echelon and of PyTorch on
the same models, the same cores and the same number of threads, in turns, and prints the medians.

PyTorch runs eager and under torch.compile, with fused attention, fused AdamW and large malloc
thresholds. What Echelon took is step_seconds of its metrics.jsonl. With --ddp there are two ranks
of one thread: Echelon's over MPI, PyTorch's DistributedDataParallel over gloo.

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
    "llama-4x256": dict(architecture="llama", hidden_size=256, num_hidden_layers=4,
                        num_attention_heads=8, num_key_value_heads=4, intermediate_size=704,
                        tie_word_embeddings=False, length=256, batch=16),
}

# ---- one run each; both return (seconds of every step, parameters) ----


def torch_rank(job):
    """A rank's own process: trains and, on rank 0, prints the result as JSON."""
    shape, ranks, rank = SHAPES[job["shape"]], job["ranks"], job["rank"]
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    model = common.Model(shape)
    run = model
    if ranks > 1:
        common.meet(job, rank, ranks)
        run = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    run = torch.compile(run) if job["compiled"] else run
    optimizer = common.adamw(model)
    ids = torch.randint(common.vocabulary(shape), (shape["batch"], shape["length"] + 1))[rank::ranks]
    seconds = []
    for _ in range(job["warmup"] + job["steps"]):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps([seconds, common.count_parameters(model)]))


def run_torch(name, ranks, threads, compiled, options, folder):
    job = dict(shape=name, ranks=ranks, threads=threads, compiled=compiled, steps=options.steps,
               warmup=options.warmup)
    return common.run_torch(__file__, ranks, threads, job, folder)


def run_echelon(name, ranks, threads, options, folder):
    shape, run = SHAPES[name], folder / f"run-{time.monotonic_ns()}"
    keys = common.shape_keys(shape, folder)
    keys += [f"training.global_batch_size={shape['batch']}",
             f"training.steps={options.warmup + options.steps}",
             "parallel.comm=" + ("mpi" if ranks > 1 else "local")]
    return common.train_echelon(options.echelon, ranks, threads, keys, run, folder)


# ---- the comparison ----


def compare(name, options, folder):
    ranks, threads = (2, 1) if options.ddp else (1, options.threads)
    systems = {"Echelon": lambda: run_echelon(name, ranks, threads, options, folder),
               "PyTorch eager": lambda: run_torch(name, ranks, threads, False, options, folder)}
    if not options.no_compile:
        systems["PyTorch compile"] = lambda: run_torch(name, ranks, threads, True, options, folder)
    seconds, counts = {system: [] for system in systems}, set()
    for _ in range(options.rounds):
        for system, run in systems.items():
            steps, count = run()
            seconds[system] += steps[options.warmup:]
            counts.add(count)
    assert len(counts) == 1, f"different models: {counts} parameters"
    tokens = SHAPES[name]["batch"] * SHAPES[name]["length"]
    ours = statistics.median(seconds["Echelon"])
    for system, steps in seconds.items():
        middle = statistics.median(steps)
        print(f"{name:12} {ranks} x {threads}  {system:16} {common.spread(steps)} "
              f"{tokens / middle:9,.0f} {middle / ours:7.2f}", flush=True)


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this model")
    parser.add_argument("--ddp", action="store_true", help="two data-parallel ranks of one thread")
    parser.add_argument("--threads", type=int, default=2, help="of the one rank otherwise (2)")
    parser.add_argument("--steps", type=int, default=10, help="timed per round (10)")
    parser.add_argument("--warmup", type=int, default=3, help="steps before these (3)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each system (2)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    if options.rank:
        torch_rank(json.loads(options.rank))
        return
    print(f"PyTorch {torch.__version__}; load before: {os.getloadavg()[0]:.2f}")
    print("model  ranks x threads  system  ms/step [quartiles]  tokens/s  ms/step over Echelon's")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name in options.shape or SHAPES:
            common.write_tokens(SHAPES[name], folder)
            compare(name, options, folder)


main()
