# SPDX-License-Identifier: Apache-2.0
"""Times one training step (forward, backward, clipping, AdamW; fp32) of Echelon and of PyTorch on
the same models, the same cores and the same number of threads, in turns, and prints the medians.

PyTorch runs eager and under torch.compile, with fused attention, fused AdamW and large malloc
thresholds. What Echelon took is step_seconds of its metrics.jsonl. With --ddp there are two ranks
of one thread: Echelon's over MPI, PyTorch's DistributedDataParallel over gloo.

Needs torch and numpy, and an otherwise idle machine.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

VOCABULARY = 257
# What a run file says, and samples per step.
SHAPES = {
    "gpt2-6x384": dict(architecture="gpt2", hidden_size=384, num_hidden_layers=6,
                       num_attention_heads=6, num_key_value_heads=6, intermediate_size=1536,
                       length=256, batch=8),
    "llama-4x256": dict(architecture="llama", hidden_size=256, num_hidden_layers=4,
                        num_attention_heads=8, num_key_value_heads=4, intermediate_size=704,
                        length=256, batch=16),
}
# glibc returns large blocks to the system at every free otherwise, and gets them back page by page.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}

# ---- the models in PyTorch ----


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, self.kv_heads = shape["num_attention_heads"], shape["num_key_value_heads"]
        self.width = shape["hidden_size"] // self.heads
        self.is_gpt2 = shape["architecture"] == "gpt2"
        columns = (self.heads + 2 * self.kv_heads) * self.width
        self.qkv = nn.Linear(shape["hidden_size"], columns, bias=self.is_gpt2)
        self.out = nn.Linear(shape["hidden_size"], shape["hidden_size"], bias=self.is_gpt2)
        angles = torch.outer(torch.arange(shape["length"]),
                             10000 ** -(torch.arange(0, self.width, 2) / self.width))
        self.register_buffer("cos", torch.cat((angles, angles), 1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), 1).sin())

    def rotate(self, x):
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-high, low), dim=-1) * self.sin

    def forward(self, x):
        B, T, C = x.shape
        groups = (self.heads, self.kv_heads, self.kv_heads)
        q, k, v = (part.view(B, T, n, self.width).transpose(1, 2) for part, n in
                   zip(self.qkv(x).split([n * self.width for n in groups], dim=2), groups))
        if not self.is_gpt2:
            q, k = self.rotate(q), self.rotate(k)
        if self.kv_heads < self.heads:
            k, v = (y.repeat_interleave(self.heads // self.kv_heads, dim=1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(B, T, C))


def gelu_mlp(C, F):
    return nn.Sequential(nn.Linear(C, F), nn.GELU(approximate="tanh"), nn.Linear(F, C))


class Swiglu(nn.Module):
    def __init__(self, C, F):
        super().__init__()
        self.gate, self.up = nn.Linear(C, F, bias=False), nn.Linear(C, F, bias=False)
        self.down = nn.Linear(F, C, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Model(nn.Module):
    """Loss of (tokens, targets): GPT-2 with tied embeddings, or Llama with a head of its own."""

    def __init__(self, shape):
        super().__init__()
        C, is_gpt2 = shape["hidden_size"], shape["architecture"] == "gpt2"
        norm, mlp = (nn.LayerNorm, gelu_mlp) if is_gpt2 else (nn.RMSNorm, Swiglu)
        self.tokens, self.head = nn.Embedding(VOCABULARY, C), nn.Linear(C, VOCABULARY, bias=False)
        self.positions = nn.Embedding(shape["length"], C) if is_gpt2 else None
        self.layers = nn.ModuleList(
            nn.ModuleList((norm(C), Attention(shape), norm(C), mlp(C, shape["intermediate_size"])))
            for _ in range(shape["num_hidden_layers"]))
        self.norm = norm(C)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        if is_gpt2:
            self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        for first, attention, second, mlp in self.layers:
            x = x + attention(first(x))
            x = x + mlp(second(x))
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


# ---- one run each; both return (seconds of every step, parameters) ----


def torch_rank(job):
    """A rank's own process: trains and, on rank 0, prints the result as JSON."""
    shape, ranks, rank = SHAPES[job["shape"]], job["ranks"], job["rank"]
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    model = Model(shape)
    count = sum(p.numel() for p in model.parameters())
    run = model
    if ranks > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + job["meeting"],
                                             world_size=ranks, rank=rank)
        run = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    run = torch.compile(run) if job["compiled"] else run
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(VOCABULARY, (shape["batch"], shape["length"] + 1))[rank::ranks]
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
        print(json.dumps([seconds, count]))


def run_torch(name, ranks, threads, compiled, options, folder):
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    ranks_running = []
    for rank in range(ranks):
        job = dict(shape=name, ranks=ranks, rank=rank, threads=threads, compiled=compiled,
                   meeting=str(meeting), steps=options.steps, warmup=options.warmup)
        cores = f"{rank * threads}-{(rank + 1) * threads - 1}"
        ranks_running.append(subprocess.Popen(
            ["taskset", "-c", cores, sys.executable, __file__, "--rank", json.dumps(job)],
            env=os.environ | MALLOC | {"OMP_NUM_THREADS": str(threads)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    answers = [process.communicate() for process in ranks_running]
    if any(process.returncode for process in ranks_running):
        raise RuntimeError("PyTorch: " + "".join(errors for _, errors in answers)[-2000:])
    return json.loads(answers[0][0].splitlines()[-1])


def run_echelon(name, ranks, threads, options, folder):
    shape, run = SHAPES[name], folder / f"run-{time.monotonic_ns()}"
    keys = [f"model.{key}={shape[key]}" for key in shape if key not in ("length", "batch")]
    keys += [f"data.sequence_length={shape['length']}", f"data.train={folder}/text",
             f"training.global_batch_size={shape['batch']}", "optimizer.learning_rate=1e-3",
             f"training.steps={options.warmup + options.steps}", "training.check_every=0",
             f"parallel.threads={threads}", f"log.directory={run}",
             "parallel.comm=" + ("mpi" if ranks > 1 else "local")]
    (folder / "run.yaml").write_text("log: {every: 1000}\n")
    cores = f"0-{ranks * threads - 1}"
    done = subprocess.run(["taskset", "-c", cores, options.echelon, "train", folder / "run.yaml",
                           "--ranks", str(ranks), *keys], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("Echelon: " + done.stderr)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    count = re.search(r"([\d,]+) parameters", done.stdout + done.stderr)[1].replace(",", "")
    return [line["step_seconds"] for line in lines if "step_seconds" in line], int(count)


# ---- the comparison ----


def write_text(options, folder):
    ids = numpy.random.default_rng(1).integers(97, 123, size=1 << 18, dtype=numpy.uint8)
    (folder / "text.txt").write_bytes(ids.tobytes())
    subprocess.run([options.echelon, "data", folder / "text.txt", folder / "text"], check=True,
                   stdout=subprocess.DEVNULL)


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
        low, _, high = statistics.quantiles(steps, n=4)
        print(f"{name:12} {ranks} x {threads}  {system:16} {1e3 * middle:8.1f} "
              f"[{1e3 * low:7.1f} {1e3 * high:7.1f}] {tokens / middle:9,.0f} {middle / ours:7.2f}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    default = pathlib.Path(__file__).resolve().parent.parent / "build/release/echelon"
    parser.add_argument("--echelon", default=default, help="the program (build/release/echelon)")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this model")
    parser.add_argument("--ddp", action="store_true", help="two data-parallel ranks of one thread")
    parser.add_argument("--threads", type=int, default=2, help="of the one rank otherwise (2)")
    parser.add_argument("--steps", type=int, default=10, help="timed per round (10)")
    parser.add_argument("--warmup", type=int, default=3, help="steps before these (3)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each system (2)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        torch_rank(json.loads(options.rank))
        return
    print(f"PyTorch {torch.__version__}; load before: {os.getloadavg()[0]:.2f}")
    print("model  ranks x threads  system  ms/step [quartiles]  tokens/s  ms/step over Echelon's")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_text(options, folder)
        for name in options.shape or SHAPES:
            compare(name, options, folder)


main()
