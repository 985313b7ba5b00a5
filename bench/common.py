# SPDX-License-Identifier: Apache-2.0
"""What the benches share: the models in PyTorch, and runs of both programs on the same cores."""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

try:
    import numpy
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

VOCABULARY = 257  # of shapes that do not say vocab_size
# glibc returns large blocks to the system at every free otherwise, and gets them back page by page.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
# Of the variables that programs are started with: both sides wait as they were built to.
UNSET = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
# A shape is what a run file says of the model, and besides:
NOT_THE_MODEL = ("length", "batch")
# Words before every program that is timed; see parser().
start_with = []


def vocabulary(shape):
    return shape.get("vocab_size", VOCABULARY)


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


class Experts(nn.Module):
    """Tokens choose k of E Swiglus, by the softmax of their logits, renormalized; a loop over
    experts."""

    def __init__(self, C, F, E, k):
        super().__init__()
        self.router = nn.Linear(C, E, bias=False)
        self.experts = nn.ModuleList(Swiglu(C, F) for _ in range(E))
        self.chosen = k

    def forward(self, x):
        rows = x.flatten(0, 1)
        best, choice = self.router(rows).topk(self.chosen)
        gates, out = best.softmax(-1), torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(choice == number)
            out.index_add_(0, row, expert(rows[row]) * gates[row, place, None])
        return out.view_as(x)


def mlp_of(shape):
    C, F = shape["hidden_size"], shape["intermediate_size"]
    if "num_local_experts" in shape:
        return Experts(C, F, shape["num_local_experts"], shape["num_experts_per_tok"])
    return gelu_mlp(C, F) if shape["architecture"] == "gpt2" else Swiglu(C, F)


class Part(nn.Module):
    """Layers first .. end - 1, with the embedding before the model's first layer and the head after
    its last: from tokens, or another part's output, to logits, or another part's input."""

    def __init__(self, shape, first, end):
        super().__init__()
        C, is_gpt2 = shape["hidden_size"], shape["architecture"] == "gpt2"
        V = vocabulary(shape)
        norm = nn.LayerNorm if is_gpt2 else nn.RMSNorm
        begins, ends = first == 0, end == shape["num_hidden_layers"]
        self.tokens = nn.Embedding(V, C) if begins else None
        self.positions = nn.Embedding(shape["length"], C) if begins and is_gpt2 else None
        self.layers = nn.ModuleList(
            nn.ModuleList((norm(C), Attention(shape), norm(C), mlp_of(shape)))
            for _ in range(first, end))
        self.norm = norm(C) if ends else None
        self.head = nn.Linear(C, V, bias=False) if ends else None
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        if shape["tie_word_embeddings"]:
            assert begins and ends, "parts of their own share no table"
            self.head.weight = self.tokens.weight

    def hidden(self, x):
        """All but the head."""
        if self.tokens is not None:
            x = self.tokens(x)
        if self.positions is not None:
            x = x + self.positions.weight
        for first, attention, second, mlp in self.layers:
            x = x + attention(first(x))
            x = x + mlp(second(x))
        return x if self.norm is None else self.norm(x)

    def forward(self, x):
        x = self.hidden(x)
        return x if self.head is None else self.head(x)


class Model(Part):
    """The whole: loss of (tokens, targets). With `rows`, by PyTorch's linear_cross_entropy, which
    has the logits of so many tokens at a time."""

    def __init__(self, shape, rows=0):
        super().__init__(shape, 0, shape["num_hidden_layers"])
        self.pieces = rows and nn.LinearCrossEntropyOptions(batch_chunk_size=rows,
                                                            chunking_method=None)

    def forward(self, tokens, targets):
        if not self.pieces:
            return mean_loss(super().forward(tokens), targets)
        return functional.linear_cross_entropy(
            self.hidden(tokens).flatten(0, 1), self.head.weight, targets.flatten(),
            options=self.pieces)


def joins_head_and_loss():
    """Whether this PyTorch does."""
    return hasattr(nn, "LinearCrossEntropyOptions")


def mean_loss(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def count_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def adamw(module):
    return torch.optim.AdamW(module.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)


# ---- runs ----


def meet(job, rank, ranks):
    """Of a rank's own process: joins the others of its run."""
    torch.distributed.init_process_group("gloo", init_method="file://" + job["meeting"],
                                         world_size=ranks, rank=rank)


def together(commands, timed=True):
    """Starts [(words, variables of the environment), ...] at the same time, as one program, with
    start_with in front of it if it is timed. Returns what together.py prints."""
    for name in UNSET:
        os.environ.pop(name, None)
    script = pathlib.Path(__file__).with_name("together.py")
    words = json.dumps([[list(map(str, words)), variables] for words, variables in commands])
    done = subprocess.run([*(start_with if timed else ()), sys.executable, script, words],
                          stdout=subprocess.PIPE, text=True, check=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    if any(code for code, _, _ in seen["ended"]):
        raise RuntimeError("\n".join(
            f"{' '.join(map(str, words))} ended with {code}: {(out + err)[-4000:]}"
            for (words, _), (code, out, err) in zip(commands, seen["ended"])))
    return seen


def run_together(commands, timed=True):
    """Returns what each printed: [(stdout, stderr), ...]."""
    return [(out, err) for _, out, err in together(commands, timed)["ended"]]


def run_torch(script, ranks, threads, job, folder, place=lambda rank, words, variables: words):
    """Starts `script --rank JSON` once a rank, each on cores of its own, by the words that place()
    makes of its own. The JSON is the job with "rank" and "meeting"; its "variables" are set in the
    environment, besides those that all have. Returns what rank 0 printed as its last line,
    parsed."""
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    commands = []
    for rank in range(ranks):
        words = json.dumps(job | dict(rank=rank, meeting=str(meeting)))
        cores = f"{rank * threads}-{(rank + 1) * threads - 1}"
        variables = {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"}
        variables |= job.get("variables", MALLOC)
        program = ["taskset", "-c", cores, sys.executable, script, "--rank", words]
        commands.append((place(rank, program, variables), variables))
    return json.loads(run_together(commands)[0][0].splitlines()[-1])


def shape_keys(shape, folder):
    """Words of the command line for the model, its data and its optimizer."""
    keys = [f"model.{key}={str(value).lower()}" for key, value in shape.items()
            if key not in NOT_THE_MODEL and key != "vocab_size"]
    keys.append(f"model.vocab_size={vocabulary(shape)}")
    keys += [f"data.sequence_length={shape['length']}", f"data.train={token_file(shape, folder)}"]
    return keys + ["optimizer.learning_rate=1e-3", "training.check_every=0"]


def echelon_words(program, command, keys, folder, cores="0"):
    """The words that run a command on the run file of the folder, on these cores."""
    (folder / "run.yaml").write_text("log: {every: 1000}\n")
    return ["taskset", "-c", cores, program, command[0], folder / "run.yaml", *command[1:], *keys]


def call_echelon(program, command, ranks, threads, keys, folder):
    """Runs a command on as many cores as threads. Returns what it printed: (stdout, stderr)."""
    keys = ["--ranks", str(ranks), f"parallel.threads={threads}", *keys]
    words = echelon_words(program, command, keys, folder, f"0-{ranks * threads - 1}")
    return run_together([(words, {})], timed=command[0] != "plan")[0]


def read_metrics(run):
    """The lines of a run's training steps."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "step_seconds" in line]


def train_echelon(program, ranks, threads, keys, run, folder):
    """Returns (seconds of every step, parameters)."""
    printed = call_echelon(program, ["train"], ranks, threads,
                           [*keys, f"log.directory={run}"], folder)
    count = re.search(r"([\d,]+) parameters", "".join(printed))[1].replace(",", "")
    return [line["step_seconds"] for line in read_metrics(run)], int(count)


def token_file(shape, folder):
    return folder / f"{vocabulary(shape)}.bin"


def write_tokens(shape, folder, tokens=1 << 18):
    """Random ids of the shape's vocabulary, as nanoGPT writes them: what shape_keys names."""
    ids = numpy.random.default_rng(1).integers(vocabulary(shape), size=tokens, dtype=numpy.uint16)
    ids.tofile(token_file(shape, folder))


# ---- the command line, and figures ----


def parser(about):
    made = argparse.ArgumentParser(description=about,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    default = pathlib.Path(__file__).resolve().parent.parent / "build/release/echelon"
    made.add_argument("--echelon", default=default, help="the program (build/release/echelon)")
    made.add_argument(
        "--start-with",
        default="",
        metavar="WORDS",
        help="before every program that is timed, as one that waits for an idle machine",
    )
    made.add_argument("--rank", help=argparse.SUPPRESS)
    return made


def parse(made):
    options = made.parse_args()
    start_with.extend(options.start_with.split())
    return options


def spread(seconds):
    """"median [quartiles]" in ms."""
    low, _, high = (
        statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    )
    return f"{1e3 * statistics.median(seconds):8.1f} [{1e3 * low:7.1f} {1e3 * high:7.1f}]"
