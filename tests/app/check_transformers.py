# SPDX-License-Identifier: Apache-2.0
"""Trains tiny models with the program and loads their checkpoints with Hugging Face transformers.

    check_transformers.py ECHELON

model/ must load as it is: every tensor used, none made up, the architecture's numbers understood
(the same loss on the validation text as `echelon eval` prints), and the tokenizer, too. Switch is
our own family; transformers has its parts: Llama's blocks and the Switch Transformer's layers.
Exits 77 where a package is missing. """
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

LENGTH = 24
# Every number differs from transformers' own default, so that one that is not exported shows.
GPT2 = {"architecture": "gpt2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96, "layer_norm_epsilon": 0.01}
LLAMA = {"architecture": "llama", "hidden_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
         "rope_theta": 300, "rms_norm_eps": 0.01}
MIXTRAL = LLAMA | {"architecture": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 3}
QWEN3_MOE = LLAMA | {"architecture": "qwen3_moe", "head_dim": 12, "num_local_experts": 6,
                     "num_experts_per_tok": 3, "moe_intermediate_size": 20}
QWEN3 = LLAMA | {"architecture": "qwen3", "head_dim": 12}
SWITCH = LLAMA | {"architecture": "switch", "num_hidden_layers": 4, "num_local_experts": 4}
CASES = {
    "gpt2": (GPT2, "auto"),
    "gpt2 untied": (GPT2 | {"tie_word_embeddings": "false"}, "auto"),
    "gpt2 in bf16": (GPT2, "bf16"),
    "llama": (LLAMA, "auto"),
    "llama tied": (LLAMA | {"tie_word_embeddings": "true"}, "auto"),
    "llama in bf16": (LLAMA, "bf16"),
    "llama trained in bf16": (LLAMA, "auto", "bf16"),
    "gpt2 trained in fp16": (GPT2, "auto", "fp16"),
    "llama with wide heads": (LLAMA | {"head_dim": 6}, "auto"),
    "qwen3": (QWEN3, "auto"),
    "mixtral": (MIXTRAL, "auto"),
    "mixtral in bf16": (MIXTRAL, "bf16"),
    "qwen3_moe": (QWEN3_MOE, "auto"),
    "qwen3_moe of probabilities": (QWEN3_MOE | {"norm_topk_prob": "false"}, "bf16"),
    "qwen3_moe with dense layers": (QWEN3_MOE | {"num_hidden_layers": 4, "moe_every": 2,
                                                 "moe_first_dense": 2}, "auto"),
    "switch": (SWITCH, "auto"),
    "switch with a capacity": (SWITCH | {"moe_capacity_factor": 0.75, "moe_every": 1}, "auto"),
    "switch of gelu": (SWITCH | {"hidden_act": "gelu_new", "moe_first_dense": 2}, "auto"),
    "qwen3 tied": (QWEN3 | {"hidden_size": 30, "tie_word_embeddings": "true"}, "auto"),
}
# how far a loss and a logit may be from those of transformers in fp64
NEAR = {"fp32": (1e-4, 1e-3), "bf16": (1e-2, 0.4), "fp16": (1e-3, 0.05)}
TORCH = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def write_text(path):
    """Sentences that a model learns something of in a few steps, with letters beyond ASCII."""
    words = "the naïve fox sees a small red hen — and runs over the wide green hill".split()
    rng = random.Random(1)
    lines = (" ".join(rng.choice(words) for _ in range(9)) + ".\n" for _ in range(200))
    path.write_text("".join(lines), encoding="utf-8")


def echelon(*words):
    done = subprocess.run([sys.argv[1], *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stdout


def train(folder, model, dtype, compute, *more):
    """Trains a few steps; returns the run directory."""
    run = folder / "run"
    assignments = [f"model.{key}={value}" for key, value in model.items()]
    (folder / "run.yaml").write_text(
        f"data:\n  train: {folder}/text-train\n  valid: {folder}/text-valid\n"
        f"  sequence_length: {LENGTH}\n"
        "training:\n  steps: 30\n  global_batch_size: 16\n"
        "optimizer:\n  learning_rate: 0.03\n  warmup_steps: 5\n"
        f"parallel:\n  comm: local\n  threads: 1\nlog:\n  directory: {run}\n")
    echelon("train", folder / "run.yaml", f"checkpoint.dtype={dtype}",
            f"precision.compute={compute}", *assignments, *more)
    return run


class Norm(torch.nn.Module):
    """RMSNorm without transformers' rounding to fp32, of which a choice of experts may depend."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def switch_of(folder):
    """Switch is ours: transformers' Llama, in which feed-forward layers are those of its Switch
    Transformer."""
    layers = transformers.models.switch_transformers.modeling_switch_transformers
    said = json.loads((folder / "config.json").read_text())
    assert said["model_type"] == "echelon-switch"
    llama = transformers.LlamaConfig(
        **{
            key: value
            for key, value in said.items()
            if key not in ("model_type", "architectures", "hidden_act")
        }
    )
    experts, most = said["num_local_experts"], LENGTH
    if said.get("moe_capacity_factor", 0) > 0:
        most = int(said["moe_capacity_factor"] * LENGTH / experts)
    switch = transformers.SwitchTransformersConfig(
        d_model=said["hidden_size"], d_ff=said["intermediate_size"], num_experts=experts,
        expert_capacity=most, dropout_rate=0, router_jitter_noise=0, router_bias=False,
        dense_act_fn=said["hidden_act"])
    model = transformers.LlamaForCausalLM(llama)
    for i, layer in enumerate(model.model.layers):
        has_experts = i >= said["moe_first_dense"] and (i + 1) % said["moe_every"] == 0
        layer.mlp = (layers.SwitchTransformersSparseMLP if has_experts else
                     layers.SwitchTransformersDenseActDense)(switch)
        if has_experts:
            layer.mlp.router.dtype = torch.float64
    stored = {re.sub(r"experts\.(\d+)\.", r"experts.expert_\1.", name).replace(
        "mlp.gate.weight", "mlp.router.classifier.weight"): tensor.double()
        for name, tensor in safetensors.torch.load_file(folder / "model.safetensors").items()}
    model.double().load_state_dict(stored)
    for name, norm in list(model.named_modules()):
        if name.endswith("norm"):
            model.set_submodule(name, Norm(norm))
    return model.eval()


def load(folder, dtype):
    """The model in fp64, after checking that nothing is missing in the files or left over."""
    if "echelon-switch" in (folder / "config.json").read_text():
        return switch_of(folder)
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {dtype}
    # without being told it takes the type that config.json states
    assert transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").dtype == dtype
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32)
    for problem, names in info.items():
        assert not names, (problem, names)
    model.save_pretrained(folder.parent / "theirs")
    theirs = set(safetensors.torch.load_file(folder.parent / "theirs" / "model.safetensors"))
    assert set(stored) == theirs, set(stored) ^ theirs
    model.config._experts_implementation = "eager"  # the others know no fp64
    return model.double().eval()


@torch.no_grad()
def loss_of(model, tokens):
    """Mean over all tokens but the first, in samples as `echelon eval` cuts them."""
    total = 0.0
    for first in range(0, len(tokens) - 1, LENGTH):
        sample = torch.tensor(tokens[first:first + LENGTH + 1])
        logits = model(sample[None, :-1]).logits[0]
        total += torch.nn.functional.cross_entropy(logits, sample[1:], reduction="sum").item()
    return total / (len(tokens) - 1)


def check_first_weights(folder):
    """Those of Switch are normals of sqrt(s / inputs), drawn again beyond two standard
    deviations."""
    run = folder / "first"
    train(folder, SWITCH | {"initializer_scale": 0.3}, "auto", "fp32", f"log.directory={run}",
          "training.steps=1", "optimizer.name=sgd", "optimizer.learning_rate=1e-30",
          "optimizer.warmup_steps=0")
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    variance = 1 - 4 * density / math.erf(math.sqrt(2))  # of what is left of a normal of variance 1
    weights = safetensors.torch.load_file(run / "checkpoints/step-00000001/model/model.safetensors")
    for name, tensor in weights.items():
        if "norm" in name:
            continue
        unit = tensor.double() / math.sqrt(0.3 / tensor.shape[-1])
        largest, near = unit.abs().max().item(), 5 * math.sqrt(1 / tensor.numel())
        assert largest < 2 * (1 + 1e-6), (name, largest)
        assert tensor.numel() < 1000 or largest > 1.9, (name, largest)
        assert abs(unit.mean().item()) < near, (name, unit.mean())
        # the standard deviation of a square of these is 0.92
        assert abs(unit.pow(2).mean().item() - variance) < near, (name, unit.var(), variance)


def check(name, folder, model, dtype, text, compute="fp32"):
    run = train(folder, model, dtype, compute)
    stored = TORCH[compute if dtype == "auto" else dtype]
    near, near_logit = NEAR[compute]
    saved = run / "checkpoints" / "step-00000030" / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    tokens = tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]
    assert tokenizer.decode(tokens[:-1]) == text
    theirs = loss_of(load(saved, stored), tokens)
    line = echelon("eval", run, "--data", folder / "text-valid", "--logits", folder / "logits")
    said = safetensors.torch.load_file(folder / "logits")
    with torch.no_grad():
        logits = load(saved, stored)(said["tokens"].long()).logits.float()
    far = (logits - said["logits"])[said["weights"] > 0].abs().max().item()
    drops = "moe_capacity_factor" in model  # of which the logits of next tokens know nothing
    assert drops or far < near_logit, f"logits are {far} apart"
    ours, count = re.search(r"loss ([\d.]+).* tokens (\d+)", line).groups()
    print(f"{name}: transformers {theirs:.6f}, echelon {ours}, {count} tokens")
    assert int(count) == len(tokens) - 1
    assert abs(theirs - float(ours)) < near, line
    assert theirs < 0.6 * math.log(257), "nothing was learned, so little was proved"


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name, (model, dtype, *compute) in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            write_text(folder / "all.txt")
            echelon("data", folder / "all.txt", folder / "text", "--valid", "0.2")
            size = (folder / "all.txt").stat().st_size
            # ids are bytes: the validation text is what stands in text-valid.bin before its end
            ids = (folder / "text-valid.bin").read_bytes()[:-2:2]
            assert 0.15 * size < len(ids) < 0.25 * size
            check(name, folder, model, dtype, ids.decode("utf-8"), *compute)
            if name == "switch":
                check_first_weights(folder)


main()
