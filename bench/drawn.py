# SPDX-License-Identifier: Apache-2.0
"""Models that speed.py draws from a seed, so that nothing was tuned for their shapes: sizes of
laptops' models, a step of which takes about a second on two cores."""
import random

COUNT = 5
LARGEST = 60_000_000  # parameters; the smallest has a tenth


def parameters(shape):
    C, F, V = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    keys = 2 * C * shape["num_key_value_heads"] // shape["num_attention_heads"]
    mlp = 2 if shape["architecture"] == "gpt2" else 3
    tables = 1 if shape["tie_word_embeddings"] else 2
    return shape["num_hidden_layers"] * (2 * C * C + keys * C + mlp * C * F) + tables * V * C


def draw(source):
    architecture = source.choice(("gpt2", "llama"))
    head = source.choice((32, 48, 64, 80, 96, 128))
    heads = source.randint(3, 16)
    groups = [n for n in range(1, heads + 1) if heads % n == 0]
    width = head * heads
    return dict(
        architecture=architecture,
        hidden_size=width,
        num_hidden_layers=source.randint(2, 12),
        num_attention_heads=heads,
        num_key_value_heads=heads if architecture == "gpt2" else source.choice(groups),
        intermediate_size=4 * width if architecture == "gpt2" else
        16 * round(source.uniform(2, 3.6) * width / 16),
        tie_word_embeddings=architecture == "gpt2" or source.random() < 0.5,
        vocab_size=source.randint(500, 50_000),
        length=source.choice((128, 256, 384, 512, 1024, 1536)),
        batch=source.randint(1, 8),
    )


def shapes(seed):
    """{name: shape}, the same for the same seed."""
    source, drawn = random.Random(seed), {}
    while len(drawn) < COUNT:
        shape = draw(source)
        small = LARGEST / 10 <= parameters(shape) <= LARGEST
        if small and 512 <= shape["batch"] * shape["length"] <= 2048:
            drawn[f"drawn-{seed}-{len(drawn) + 1}"] = shape
    return drawn
