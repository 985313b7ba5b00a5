# SPDX-License-Identifier: Apache-2.0
"""GPT-2 (Radford et al. 2019), Llama (Touvron et al. 2023) and Mixtral (Jiang et al. 2024) as
equations.

Each takes parameters under their Hugging Face names and tokens of shape (B, T), and returns logits
of shape (B, T, V) and the sum of the auxiliary losses of its routers.
"""
import math

import numpy as np
import tape

SIZES = {"width": 8, "layers": 2, "heads": 2, "vocabulary": 11, "positions": 6, "inner": 12}


def causal_attention(q, k, v, starts, drop=lambda x: x):
    """Scaled dot-product attention of (B, H, T, D); query i sees the keys starts[i] to i."""
    scores = q @ k.transpose(0, 1, 3, 2) * (1 / math.sqrt(q.shape[3]))
    i, j = np.indices(scores.shape[2:])
    seen = (j <= i) & (j >= starts[:, None, :, None])
    return drop(tape.softmax(scores + np.where(seen, 0, -np.inf))) @ v


def split_heads(x, heads):
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def join_heads(x):
    batch, heads, tokens, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, tokens, heads * width)


def layer_norm(x, gain, bias, eps=1e-5):
    x = x - x.mean(-1, keepdims=True)
    return x * ((x * x).mean(-1, keepdims=True) + eps) ** -0.5 * gain + bias


def gelu_new(x):
    return 0.5 * x * (1 + tape.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def gpt2(p, tokens, heads=SIZES["heads"], starts=None, drop=lambda x, what, layer: x):
    """`starts` (B, T): where each token's document begins. `drop` is called where dropout is."""
    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    def norm(x, name):
        return layer_norm(x, p[name + ".weight"], p[name + ".bias"])

    starts = np.zeros_like(tokens) if starts is None else starts
    x = p["transformer.wte.weight"][tokens] + \
        p["transformer.wpe.weight"][np.arange(tokens.shape[1]) - starts]
    x, width = drop(x, "embedding", 0), x.shape[2]
    for i in range(layers_of(p)):
        at = f"transformer.h.{i}."
        qkv = linear(norm(x, at + "ln_1"), at + "attn.c_attn")
        q, k, v = (split_heads(qkv[..., j * width:(j + 1) * width], heads) for j in range(3))
        y = causal_attention(q, k, v, starts, lambda x: drop(x, "probabilities", i))
        x = x + drop(linear(join_heads(y), at + "attn.c_proj"), "attention", i)
        y = gelu_new(linear(norm(x, at + "ln_2"), at + "mlp.c_fc"))
        x = x + drop(linear(y, at + "mlp.c_proj"), "feed_forward", i)
    head = p.get("lm_head.weight", p["transformer.wte.weight"])
    return norm(x, "transformer.ln_f") @ head.T, 0.0


def layers_of(p):
    return 1 + max(int(part) for name in p for part in name.split(".") if part.isdigit()
                   and "experts" not in name)


def rms_norm(x, gain, eps=1e-5):
    return x * ((x * x).mean(-1, keepdims=True) + eps) ** -0.5 * gain


def rotary_frequencies(width, theta=10000.0):
    return theta ** (-np.arange(0, width, 2) / width)


def llama3_frequencies(width, theta=10000.0, factor=8, low=1, high=4, original=8192):
    """Llama 3.1: slow angles are divided by a factor, fast ones stay, between them linear."""
    plain = rotary_frequencies(width, theta)
    turns = original * plain / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - smooth) * plain / factor + smooth * plain


def rotate(x, positions, frequencies):
    """Rotary positions (Su et al. 2021), halves of a head as pairs, of (B, H, T, D)."""
    half = x.shape[3] // 2
    angles = positions[:, None, :, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return tape.concatenate([a * np.cos(angles) - b * np.sin(angles),
                             b * np.cos(angles) + a * np.sin(angles)], 3)


def silu(x):
    return x * tape.sigmoid(x)


def llama(p, tokens, heads=SIZES["heads"], feed_forward=None, starts=None,
          frequencies=rotary_frequencies):
    """`feed_forward(p, at, x)` returns what is added to the stream, and an auxiliary loss. There
    may be fewer key/value heads, norms of queries and keys (Qwen3), a head that is the
    embedding."""
    def dense(p, at, x):
        gate, up, down = (p[f"{at}mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        return (silu(x @ gate.T) * (x @ up.T)) @ down.T, 0.0

    auxiliary = 0.0
    starts = np.zeros_like(tokens) if starts is None else starts
    positions = np.arange(tokens.shape[1]) - starts
    x = p["model.embed_tokens.weight"][tokens]
    for i in range(layers_of(p)):
        at = f"model.layers.{i}."
        y = rms_norm(x, p[at + "input_layernorm.weight"])
        q, k, v = (y @ p[f"{at}self_attn.{name}_proj.weight"].T for name in "qkv")
        shared = q.shape[2] // k.shape[2]
        q, k, v = split_heads(q, heads), split_heads(k, heads // shared), \
            split_heads(v, heads // shared)
        if at + "self_attn.q_norm.weight" in p:
            q, k = (rms_norm(z, p[f"{at}self_attn.{name}_norm.weight"])
                    for z, name in ((q, "q"), (k, "k")))
        q, k = (rotate(z, positions, frequencies(z.shape[3])) for z in (q, k))
        k, v = (z[:, np.arange(heads) // shared] for z in (k, v))
        y = causal_attention(q, k, v, starts)
        x = x + join_heads(y) @ p[at + "self_attn.o_proj.weight"].T
        y = rms_norm(x, p[at + "post_attention_layernorm.weight"])
        y, loss = (feed_forward or dense)(p, at, y)
        x, auxiliary = x + y, auxiliary + loss
    head = p.get("lm_head.weight", p["model.embed_tokens.weight"])
    return rms_norm(x, p["model.norm.weight"]) @ head.T, auxiliary


def losses(logits, targets, weights=1.0):
    """The sum of the cross entropies, times weights."""
    shifted = logits - logits.data.max(axis=-1, keepdims=True)
    picked = shifted[(*np.indices(targets.shape), targets)]
    return ((tape.log(tape.exp(shifted).sum(-1)) - picked) * weights).sum()


# ---- what training starts from ----

def gpt2_start(random, s=SIZES):
    width, inner = s["width"], s["inner"]
    shapes = {"transformer.wte.weight": (s["vocabulary"], width),
              "transformer.wpe.weight": (s["positions"], width),
              "transformer.ln_f.weight": (width,), "transformer.ln_f.bias": (width,),
              "lm_head.weight": (s["vocabulary"], width)}
    for i in range(s["layers"]):
        for name, shape in (("ln_1", (width,)), ("ln_2", (width,)),
                            ("attn.c_attn", (width, 3 * width)), ("attn.c_proj", (width, width)),
                            ("mlp.c_fc", (width, inner)), ("mlp.c_proj", (inner, width))):
            shapes[f"transformer.h.{i}.{name}.weight"] = shape
            shapes[f"transformer.h.{i}.{name}.bias"] = shape[-1:]
    return drawn(random, shapes), {
        "model_type": "gpt2", "vocab_size": s["vocabulary"], "n_embd": width, "n_inner": inner,
        "n_layer": s["layers"], "n_head": s["heads"], "n_positions": s["positions"],
        "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
        "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "tie_word_embeddings": False}


def llama_start(random, s=SIZES, experts=0):
    width, inner = s["width"], s["inner"]
    shapes = {"model.embed_tokens.weight": (s["vocabulary"], width),
              "model.norm.weight": (width,), "lm_head.weight": (s["vocabulary"], width)}
    for i in range(s["layers"]):
        at = f"model.layers.{i}."
        for name in "qkvo":
            shapes[f"{at}self_attn.{name}_proj.weight"] = (width, width)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}{name}.weight"] = (width,)
        if experts:
            shapes[f"{at}block_sparse_moe.gate.weight"] = (experts, width)
        for name, shape in (("gate_proj", (inner, width)), ("up_proj", (inner, width)),
                            ("down_proj", (width, inner))):
            if not experts:
                shapes[f"{at}mlp.{name}.weight"] = shape
            for e in range(experts):
                short = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[name]
                shapes[f"{at}block_sparse_moe.experts.{e}.{short}.weight"] = shape
    config = {"model_type": "mixtral" if experts else "llama", "vocab_size": s["vocabulary"],
              "hidden_size": width, "intermediate_size": inner, "hidden_act": "silu",
              "num_hidden_layers": s["layers"], "num_attention_heads": s["heads"],
              "num_key_value_heads": s["heads"], "max_position_embeddings": s["positions"],
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
    if experts:
        config |= {"num_local_experts": experts, "num_experts_per_tok": 2}
    return drawn(random, shapes), config


def mixtral_start(random, gate=None):
    """Four experts; of gates that only Echelon knows the model has a type of its own."""
    weights, config = llama_start(random, experts=4)
    if gate == "dense":
        config["num_experts_per_tok"] = 4
    elif gate:
        config["model_type"] = f"echelon-{gate}-mixtral"
    if gate == "switch":
        config["num_experts_per_tok"] = 1
    if gate == "bias":
        config |= {"n_group": 2, "topk_group": 1,
                   "routed_scaling_factor": 1.5}
    for name in [name for name in weights if name.endswith("moe.gate.weight")]:
        if gate == "noisy_topk":
            weights[name.replace("gate.", "noise.")] = random.normal(0, 0.3, weights[name].shape)
        if gate == "bias":
            weights[name.replace("weight", "e_score_correction_bias")] = random.normal(0, 0.1, 4)
    return weights, config


def drawn(random, shapes):
    """Numbers large enough for every term to matter; gains are about 1."""
    return {name: random.normal(1.0 if len(shape) == 1 and "weight" in name else 0.0, 0.3, shape)
            for name, shape in shapes.items()}
