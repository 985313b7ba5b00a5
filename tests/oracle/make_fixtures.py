# SPDX-License-Identifier: Apache-2.0
"""Trains tiny models with PyTorch in fp64 and writes down what tests/app/test_pytorch.c must find.

    make_fixtures.py FOLDER           writes CASE.yaml and CASE.safetensors for every case below
    make_fixtures.py --check FOLDER   computes them anew and compares (1e-9)

CASE.yaml is a run file without data.train and log.directory, which the test fills in. In
CASE.safetensors are
    tokens            (n) I32: the whole stream. A step trains on all its samples at once, so that
                      their order does not matter; the last one is padded with weight 0
    documents         (m) I32, where data.document_mask is true: lengths of the stream's documents.
                      PyTorch runs what a sample has of each by itself, from position 0 on; no
                      document's first token is predicted
    initial.NAME      F32, exact in fp64 too: every parameter before the first step
    gradient.NAME     F64: of the first step, before clipping
    weight.NAME       F64: after STEPS steps
    loss, grad_norm, learning_rate   (STEPS) F64: of every step; the norm before clipping

What runs is Hugging Face transformers' GPT2LMHeadModel and LlamaForCausalLM, and for qwen3 its
Qwen3ForCausalLM, with PyTorch's own clip_grad_norm_, AdamW, SGD, LinearLR and CosineAnnealingLR.
Exits 77 where a package is missing. """
import pathlib
import sys
import warnings

try:
    import numpy
    import torch
    import transformers
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

STEPS = 4
VOCABULARY = 37
LENGTH = 11  # of a sample; one position of the table stays unused
SAMPLES = 6
TOKENS = (SAMPLES - 1) * LENGTH + 5  # so the last sample predicts 4 tokens only

GPT2 = {"architecture": "gpt2", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "layer_norm_epsilon": 1e-5}
LLAMA = {"architecture": "llama", "hidden_size": 16, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
         "rope_theta": 500.0, "rms_norm_eps": 1e-5}
QWEN3 = LLAMA | {"architecture": "qwen3", "head_dim": 6}
ADAMW = {"name": "adamw", "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "learning_rate": 0.01}
SGD = {"name": "sgd", "momentum": 0.9, "nesterov": True, "learning_rate": 0.05}
# Parts of documents in samples of 11 tokens: several, one, one token; borders at those of samples.
DOCUMENTS = [3, 4, 6, 9, 1, 10, 15, 8, 4]
# Gradients' norms are between 1 and 3: a clip_norm of 0.5 always clips, 100 never does.
CASES = {
    "gpt2": (GPT2 | {"tie_word_embeddings": True}, ADAMW | {"clip_norm": 0.5}, None),
    "gpt2_untied": (GPT2 | {"tie_word_embeddings": False}, ADAMW | {"clip_norm": 100.0}, None),
    "gpt2_sgd": (GPT2 | {"tie_word_embeddings": True}, SGD | {"clip_norm": 0.5}, None),
    "llama": (LLAMA | {"tie_word_embeddings": False}, ADAMW | {"clip_norm": 0.5}, None),
    "llama_tied": (LLAMA | {"tie_word_embeddings": True}, ADAMW | {"clip_norm": 0.5}, None),
    "gpt2_documents": (GPT2 | {"tie_word_embeddings": True}, ADAMW | {"clip_norm": 0.5}, DOCUMENTS),
    "llama_documents": (LLAMA | {"tie_word_embeddings": False}, ADAMW | {"clip_norm": 0.5},
                        DOCUMENTS),
    "qwen3": (QWEN3 | {"tie_word_embeddings": True}, ADAMW | {"clip_norm": 0.5}, None),
    "gpt2_reversible": (GPT2 | {"tie_word_embeddings": True, "reversible": True},
                        ADAMW | {"clip_norm": 0.5}, None),
    "llama_reversible": (LLAMA | {"tie_word_embeddings": False, "reversible": True},
                         ADAMW | {"clip_norm": 0.5}, None),
}


def run_file(model, optimizer, documents):
    """The sections of the run file that the numbers below belong to."""
    mask = {"document_mask": True} if documents else {}
    return {
        "model": model | {"max_position_embeddings": LENGTH + 1},
        "data": {"sequence_length": LENGTH} | mask,
        "training": {"steps": STEPS, "global_batch_size": SAMPLES},
        "optimizer": optimizer | {"schedule": "cosine", "warmup_steps": 2,
                                  "min_learning_rate": 0.001, "weight_decay": 0.1},
        "parallel": {"comm": "local", "threads": 1},
    }


def to_yaml(run):
    def text(value):
        return str(value).lower() if isinstance(value, bool) else str(value)

    lines = []
    for section, keys in run.items():
        lines.append(f"{section}:")
        lines.extend(f"  {key}: {text(value)}" for key, value in keys.items())
    return "\n".join(lines) + "\n"


# ---- models ----


def build_gpt2(m):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=m["max_position_embeddings"], n_embd=m["hidden_size"],
        n_layer=m["num_hidden_layers"], n_head=m["num_attention_heads"],
        n_inner=m["intermediate_size"], layer_norm_epsilon=m["layer_norm_epsilon"],
        tie_word_embeddings=m["tie_word_embeddings"], activation_function="gelu_new",
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0,
        attn_implementation="sdpa"))


def build_llama(m):
    own = {"head_dim": m["head_dim"]} if "head_dim" in m else {}
    kind = (transformers.Qwen3ForCausalLM, transformers.Qwen3Config) if own else (
        transformers.LlamaForCausalLM, transformers.LlamaConfig)
    return kind[0](kind[1](
        vocab_size=VOCABULARY, max_position_embeddings=m["max_position_embeddings"],
        hidden_size=m["hidden_size"], num_hidden_layers=m["num_hidden_layers"],
        num_attention_heads=m["num_attention_heads"],
        num_key_value_heads=m["num_key_value_heads"], intermediate_size=m["intermediate_size"],
        rope_parameters={"rope_type": "default", "rope_theta": m["rope_theta"]},
        rms_norm_eps=m["rms_norm_eps"], tie_word_embeddings=m["tie_word_embeddings"],
        attn_implementation="sdpa", **own))


class Rotary64(torch.nn.Module):
    """LlamaRotaryEmbedding's cosines and sines, in fp64."""

    def __init__(self, theta, width):
        super().__init__()
        self.frequency = theta ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(self, x, position_ids):
        angles = position_ids[..., None] * self.frequency
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


def widen_llama(model, m):
    """LlamaForCausalLM and Qwen3ForCausalLM compute norms and angles in fp32 even where their
    weights are fp64: they are replaced here, and the logits must stay the same within fp32."""
    ids = torch.arange(LENGTH)[None]
    before = model(ids).logits.detach()
    model.model.rotary_emb = Rotary64(
        m["rope_theta"], m.get("head_dim", m["hidden_size"] // m["num_attention_heads"]))

    def widen(norm):
        wide = torch.nn.RMSNorm(norm.weight.shape, m["rms_norm_eps"])
        wide.weight = norm.weight
        return wide

    model.model.norm = widen(model.model.norm)
    for layer in model.model.layers:
        layer.input_layernorm = widen(layer.input_layernorm)
        layer.post_attention_layernorm = widen(layer.post_attention_layernorm)
        if "head_dim" in m:
            layer.self_attn.q_norm = widen(layer.self_attn.q_norm)
            layer.self_attn.k_norm = widen(layer.self_attn.k_norm)
    assert torch.allclose(model(ids).logits, before, rtol=1e-5, atol=1e-5)


def fill(model, generator):
    """Weights large enough that no part of the gradient is small; gains around 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.from_numpy(0.2 * generator.standard_normal(parameter.shape))
            is_gain = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(noise + 1 if is_gain else noise)


def divide_streams(model, m):
    """Two streams, side by side between layers: attention adds to the first what it makes of the
    second, the feed-forward layer to the second what it makes of the first. Both begin as the
    embedding, and the final norm is of their sum."""
    body = model.transformer if m["architecture"] == "gpt2" else model.model
    width = m["hidden_size"]
    names = (("h", "ln_f", "ln_1", "attn", "ln_2") if m["architecture"] == "gpt2" else
             ("layers", "norm", "input_layernorm", "self_attn", "post_attention_layernorm"))

    def two_streams(layer):
        norm, attention, second_norm = (getattr(layer, name) for name in names[2:])

        def forward(hidden, *positional, **named):
            first, second = hidden[..., :width], hidden[..., -width:]  # of one: both are all of it
            first = first + attention(norm(second), *positional, **named)[0]
            second = second + layer.mlp(second_norm(first))
            return torch.cat((first, second), dim=-1)

        return forward

    for layer in getattr(body, names[0]):
        layer.forward = two_streams(layer)
    getattr(body, names[1]).register_forward_pre_hook(
        lambda norm, inputs: (inputs[0][..., :width] + inputs[0][..., width:],))


def build(m, generator):
    model = (build_gpt2 if m["architecture"] == "gpt2" else build_llama)(m)
    fill(model, generator)
    model = model.double().eval()
    if m["architecture"] != "gpt2":
        widen_llama(model, m)
    if m.get("reversible"):
        divide_streams(model, m)
    return model


# ---- training ----


def cut(tokens, begins):
    """(inputs, targets, weights), each (SAMPLES, LENGTH): sample s is LENGTH + 1 tokens from
    s LENGTH on. Tokens after the end and at places `begins` weigh 0."""
    inputs = torch.zeros(SAMPLES, LENGTH, dtype=torch.long)
    targets, weights = torch.zeros_like(inputs), torch.zeros(SAMPLES, LENGTH, dtype=torch.float64)
    for s in range(SAMPLES):
        sample = tokens[s * LENGTH:s * LENGTH + LENGTH + 1]
        inputs[s, :min(len(sample), LENGTH)] = sample[:LENGTH]
        targets[s, :len(sample) - 1] = sample[1:]
        weights[s, :len(sample) - 1] = 1
        for t in range(len(sample) - 1):
            if s * LENGTH + t + 1 in begins:
                weights[s, t] = 0
    return inputs, targets, weights


def logits_of(model, inputs, begins):
    """Of each document's part of each sample by itself."""
    if not begins:
        return model(inputs).logits
    rows = []
    for s, sample in enumerate(inputs):
        inside = [t for t in range(1, LENGTH) if s * LENGTH + t in begins]
        parts = zip([0] + inside, inside + [LENGTH])
        rows.append(torch.cat([model(sample[None, a:b]).logits[0] for a, b in parts]))
    return torch.stack(rows)


def loss_of(model, batch, begins):
    inputs, targets, weights = batch
    losses = torch.nn.functional.cross_entropy(
        logits_of(model, inputs, begins).transpose(1, 2), targets, reduction="none")
    return (losses * weights).sum() / weights.sum()


def build_optimizer(model, o):
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1],
               "weight_decay": o["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0}]
    if o["name"] == "sgd":
        return torch.optim.SGD(groups, lr=o["learning_rate"], momentum=o["momentum"],
                               nesterov=o["nesterov"])
    return torch.optim.AdamW(groups, lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]),
                             eps=o["eps"])


def build_curve(optimizer, o, steps):
    """Warm-up to the full rate at update warmup_steps, then half a cosine that would end one update
    after the last: the decay at an update is that of the updates before it."""
    warmup = o["warmup_steps"]
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warmup, total_iters=warmup - 1)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - warmup,
                                                      o["min_learning_rate"])
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [warmup])


def compute(run, documents, seed):
    generator = numpy.random.default_rng(seed)
    model = build(run["model"], generator)
    tokens = torch.from_numpy(generator.integers(VOCABULARY, size=TOKENS))
    begins = set(numpy.cumsum(documents)[:-1].tolist()) if documents else set()
    out = {"tokens": tokens.int()}
    if documents:
        assert sum(documents) == TOKENS
        out["documents"] = torch.tensor(documents, dtype=torch.int32)
    out |= {f"initial.{name}": p.detach().float() for name, p in model.named_parameters()}
    optimizer = build_optimizer(model, run["optimizer"])
    curve = build_curve(optimizer, run["optimizer"], run["training"]["steps"])
    series = {"loss": [], "grad_norm": [], "learning_rate": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, cut(tokens, begins), begins)
        loss.backward()
        if step == 0:
            out |= {f"gradient.{name}": p.grad.clone() for name, p in model.named_parameters()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), run["optimizer"]["clip_norm"])
        series["loss"].append(loss.item())
        series["grad_norm"].append(norm.item())
        series["learning_rate"].append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        curve.step()
    out |= {f"weight.{name}": p.detach() for name, p in model.named_parameters()}
    out |= {name: torch.tensor(values, dtype=torch.float64) for name, values in series.items()}
    return {name: tensor.numpy().copy() for name, tensor in out.items()}


def compare(case, folder, run, tensors):
    stored = load_file(folder / f"{case}.safetensors")
    assert (folder / f"{case}.yaml").read_text() == to_yaml(run), f"{case}.yaml"
    assert stored.keys() == tensors.keys(), case
    for name, tensor in tensors.items():
        numpy.testing.assert_allclose(tensor, stored[name], rtol=1e-9, atol=1e-11, err_msg=name)


def main():
    check, folder = sys.argv[1] == "--check", pathlib.Path(sys.argv[-1])
    warnings.filterwarnings("ignore", category=UserWarning)  # SequentialLR's about its own calls
    torch.set_num_threads(1)
    for seed, (case, (model, optimizer, documents)) in enumerate(CASES.items()):
        run = run_file(model, optimizer, documents)
        tensors = compute(run, documents, seed)
        print(case, "losses", *tensors["loss"], "norms", *tensors["grad_norm"])
        if check:
            compare(case, folder, run, tensors)
        else:
            (folder / f"{case}.yaml").write_text(to_yaml(run))
            save_file(tensors, folder / f"{case}.safetensors")


main()
