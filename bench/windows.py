# SPDX-License-Identifier: Apache-2.0
"""PyTorch's attention with a window over full causal attention, as bench_attention compares ours.

    bench/windows.py [T [W]]

scaled_dot_product_attention has no argument for a window, so it gets a mask. flex_attention skips
blocks outside of the window, but it has no backward on processors.

fp32, 8 heads, one thread; processor time of forward and backward, medians of paired rounds.
"""
import statistics
import sys
import time

import torch

HEADS, ROUNDS = 8, 3


def seconds(q, k, v, **how):
    begin = time.process_time()
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, **how)
    y.backward(torch.ones_like(y))
    return time.process_time() - begin


def main():
    T, W = (int(x) for x in (sys.argv[1:] + ["8192", "1024"][len(sys.argv) - 1:]))
    torch.set_num_threads(1)
    distance = torch.arange(T)[:, None] - torch.arange(T)
    mask = (distance >= 0) & (distance < W)
    for D in (64, 128):
        q, k, v = (torch.rand(1, HEADS, T, D, requires_grad=True) for _ in range(3))
        pairs = [(seconds(q, k, v, attn_mask=mask), seconds(q, k, v, is_causal=True))
                 for _ in range(ROUNDS)]
        window, full = (1e3 * statistics.median(x) for x in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"T {T}, D {D}, window {W}: {ratio:.3f} of full causal attention; "
              f"{window:.0f} and {full:.0f} ms")


if __name__ == "__main__":
    main()
