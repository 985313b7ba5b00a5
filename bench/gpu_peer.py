# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of tools/gpu.sh's stage bench: steps of GPT-2 124M in bf16 (autocast, fused
attention, fused AdamW, clipping) on the first GPU, eager and compiled. Prints a line each: its
seconds a step, tokens/s, and the most memory that tensors took."""
import argparse
import statistics
import sys
import time

import common
from common import nn, torch

SHAPE = dict(
    architecture="gpt2",
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    num_key_value_heads=12,
    intermediate_size=3072,
    tie_word_embeddings=True,
    vocab_size=50304,
)


def step(model, optimizer, batches):
    optimizer.zero_grad(set_to_none=False)
    for ids in batches:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(ids[:, :-1], ids[:, 1:]) / len(batches)
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
    return loss.item()


def time_steps(made, compiled):
    torch.manual_seed(1)
    torch.cuda.reset_peak_memory_stats()
    model = common.Model(SHAPE | dict(length=made.length)).to("cuda")
    optimizer = common.adamw(model)
    run = torch.compile(model) if compiled else model
    batches = torch.randint(
        SHAPE["vocab_size"],
        (made.samples // made.micro_batch, made.micro_batch, made.length + 1),
        device="cuda",
    )
    step(run, optimizer, batches[:2])
    seconds = []
    for _ in range(made.steps):
        start = time.perf_counter()
        step(run, optimizer, batches)
        seconds.append(time.perf_counter() - start)
    middle = statistics.median(seconds)
    kind = "compiled" if compiled else "eager"
    rate = made.samples * made.length / middle
    print(
        f"PyTorch {torch.__version__}, {kind}: {middle:.3f} s a step, {rate:,.0f} tok/s, "
        f"{torch.cuda.max_memory_allocated() >> 20} MiB",
        flush=True,
    )


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--samples", type=int, default=512, help="of a step")
    words.add_argument("--micro-batch", type=int, default=16)
    words.add_argument("--length", type=int, default=1024)
    words.add_argument("--steps", type=int, default=3)
    made = words.parse_args()
    if not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        sys.exit(77)
    torch.backends.cuda.matmul.allow_tf32 = False
    for compiled in (False, True):
        time_steps(made, compiled)


if __name__ == "__main__":
    main()
