# SPDX-License-Identifier: Apache-2.0
"""Weights there and back between Hugging Face transformers and the program.

    check_init_from.py ECHELON PRINT_LOGITS

transformers saves small random models: single files and shards, fp32, bf16 and fp16, with Llama-3
positions, grouped queries, heads of a width of their own, tied and untied tables, and under
OpenAI's old GPT-2 names. Then

    logits of `print_logits` on their folder equal theirs,
    a run under several layouts that starts from it has their loss, and saves the same weights,
    transformers' logits of what the run saved equal those of `print_logits` on it,
    what a chat model's folder says besides weights is what transformers reads in checkpoints,
    what is wrong with a folder is said.

Exits 77 where a package is missing.
"""

import functools
import importlib.util
import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

VOCABULARY = 270  # bytes need 257
LENGTH = 24
TOLERANCE = 1e-4
GPT2 = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40, "layer_norm_epsilon": 0.003,
        "bos_token_id": 256, "eos_token_id": 256}
LLAMA = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 56, "max_position_embeddings": 50, "rms_norm_eps": 0.002,
         "rope_theta": 700.0, "bos_token_id": 256, "eos_token_id": 256}
QWEN3 = LLAMA | {"hidden_size": 28, "num_key_value_heads": 2, "head_dim": 12,
                 "use_sliding_window": False}
MIXTRAL = LLAMA | {"num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 3,
                   "sliding_window": None}
QWEN3_MOE = QWEN3 | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20,
                     "norm_topk_prob": True}
WINDOW = {"use_sliding_window": True, "sliding_window": 7}
# Families without a branch of their own here: the configuration's class, and its options.
MISTRAL = {"class": "MistralConfig", "num_key_value_heads": 2, "head_dim": 10,
           "sliding_window": None}
QWEN2 = {"class": "Qwen2Config", "num_key_value_heads": 2, "rope_theta": 5e5}
GEMMA2 = {"class": "Gemma2Config", "num_key_value_heads": 2, "head_dim": 10, "sliding_window": 7,
          "query_pre_attn_scalar": 19, "attn_logit_softcapping": 1.5,
          "final_logit_softcapping": 4.0, "tie_word_embeddings": False}
GEMMA3 = {"class": "Gemma3TextConfig", "num_key_value_heads": 2, "head_dim": 10,
          "sliding_window": 7, "query_pre_attn_scalar": 19, "tie_word_embeddings": False,
          "rope_theta": 700.0, "rope_local_base_freq": 90.0}
GRANITE = {"class": "GraniteConfig", "num_key_value_heads": 2, "attention_multiplier": 0.2,
           "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.5,
           "attention_bias": True, "mlp_bias": True}
STARCODER2 = {"class": "Starcoder2Config", "num_key_value_heads": 2, "norm_epsilon": 0.004,
              "tie_word_embeddings": False}
PHI3 = {"class": "Phi3Config", "num_key_value_heads": 2, "pad_token_id": None}
GPT_NEOX = {"class": "GPTNeoXConfig", "layer_norm_eps": 0.004, "rotary_pct": 0.5,
            "rotary_emb_base": 700.0}
GLM4 = {"class": "Glm4Config", "num_key_value_heads": 2, "head_dim": 12,
        "partial_rotary_factor": 0.5, "pad_token_id": None}
SMOLLM3 = {"class": "SmolLM3Config", "num_key_value_heads": 2, "pad_token_id": None}
QWEN2_MOE = {"class": "Qwen2MoeConfig", "num_key_value_heads": 2, "num_experts": 6,
             "num_experts_per_tok": 3, "moe_intermediate_size": 20,
             "shared_expert_intermediate_size": 40, "pad_token_id": None}
OLMO2 = {"class": "Olmo2Config", "num_key_value_heads": 2, "head_dim": 10, "pad_token_id": None}
OLMO3 = OLMO2 | {"class": "Olmo3Config", "sliding_window": 7, "rope_theta": 5e5, "layer_types": [
    "sliding_attention", "full_attention", "sliding_attention"]}
OLMOE = {"class": "OlmoeConfig", "num_key_value_heads": 2, "num_experts": 6,
         "num_experts_per_tok": 3, "pad_token_id": None}
GPT_OSS = {"class": "GptOssConfig", "num_key_value_heads": 2, "head_dim": 12, "sliding_window": 7,
           "num_local_experts": 6, "num_experts_per_tok": 3}
DEEPSEEK_V3 = {"class": "DeepseekV3Config", "n_routed_experts": 6, "num_experts_per_tok": 3,
               "moe_intermediate_size": 20, "n_group": 3, "topk_group": 2, "num_key_value_heads": 4,
               "first_k_dense_replace": 1, "q_lora_rank": 14, "kv_lora_rank": 10,
               "qk_nope_head_dim": 6, "qk_rope_head_dim": 8, "v_head_dim": 10,
               "n_shared_experts": 2}
SCALING = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 16}
# Without rounding, each number counts in heads as small as these.
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 1.5, "beta_slow": 0.2, "truncate": False}
# olmo3 always rounds: then each number counts in heads of 64, with a beta_slow for each base.
ROUNDED_YARN = {key: YARN[key] for key in YARN if key != "truncate"}
# The last sample, of 12 tokens, is long, too: transformers chooses by a sample, we by a run.
LONGROPE = {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 8,
            "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 1.5, 2.5, 3.5]}
# Families that Echelon does not have: a mapping file beside config.json states them.
SEED_OSS = {"class": "SeedOssConfig", "num_key_value_heads": 2, "head_dim": 12,
            "pad_token_id": None}
ARCEE = {"class": "ArceeConfig", "num_key_value_heads": 2, "mlp_bias": True}
HELIUM = {"class": "HeliumConfig", "hidden_size": 40, "num_key_value_heads": 2, "head_dim": 10,
          "attention_bias": True, "pad_token_id": None}
ARCEE_MAPPING = """
family: arcee
architecture: ArceeForCausalLM
keys:
  hidden_act: {key: model.hidden_act, default: relu2, values: {relu2: relu2}}
"""
HELIUM_MAPPING = """
family: helium
architecture: HeliumForCausalLM
constants: {model.rope_interleaved: true, model.o_bias: false}
keys:
  attention_bias: {key: model.qkv_bias, default: false}
  rope_theta: {key: model.rope_theta, default: 100000}
"""
MAPPINGS = pathlib.Path(__file__).parents[2] / "examples/mappings"
CASES = {
    "seed_oss mapped": (LLAMA | SEED_OSS, {
        "mapping": (MAPPINGS / "seed_oss.yaml").read_text()}),
    "seed_oss mapped v4": (LLAMA | SEED_OSS | {"attention_bias": False, "attention_out_bias": True,
                                               "tie_word_embeddings": True}, {
        "mapping": (MAPPINGS / "seed_oss.yaml").read_text(), "v4": True}),
    "arcee mapped": (LLAMA | ARCEE, {"mapping": ARCEE_MAPPING, "max_shard_size": "15KB"}),
    "helium mapped": (LLAMA | HELIUM, {"mapping": HELIUM_MAPPING}),
    "gpt2": (GPT2, {}),
    "gpt2 inner": (GPT2 | {"n_inner": 72}, {"max_shard_size": "20KB"}),
    "gpt2 openai": (GPT2, {"openai": True}),
    "gpt2 fp16": (GPT2 | {"tie_word_embeddings": False}, {"dtype": torch.float16}),
    "llama": (LLAMA, {}),
    "llama 3.1": (LLAMA | {"num_key_value_heads": 2, "rope_scaling": SCALING},
                  {"max_shard_size": "15KB"}),
    "llama v4": (LLAMA | {"num_key_value_heads": 2, "rope_scaling": SCALING}, {"v4": True}),
    "llama bf16": (LLAMA | {"num_key_value_heads": 1, "tie_word_embeddings": True},
                   {"dtype": torch.bfloat16, "max_shard_size": "10KB"}),
    "llama wide": (LLAMA | {"head_dim": 10}, {}),
    "llama linear": (LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 3.0},
                              "hidden_act": "gelu"}, {}),
    "llama yarn": (LLAMA | {"rope_scaling": YARN, "hidden_act": "gelu_pytorch_tanh"}, {}),
    "llama longrope": (LLAMA | {"rope_scaling": LONGROPE}, {"v4": True}),
    "mixtral": (MIXTRAL, {}),
    "mixtral v4": (MIXTRAL, {"v4": True, "max_shard_size": "25KB"}),
    "qwen3_moe": (QWEN3_MOE, {}),
    "qwen3_moe v4": (QWEN3_MOE | {"norm_topk_prob": False, "num_hidden_layers": 4,
                                  "decoder_sparse_step": 2, "mlp_only_layers": [0, 1, 2]},
                     {"v4": True, "max_shard_size": "25KB"}),
    "qwen3": (QWEN3, {"max_shard_size": "15KB"}),
    "mistral": (LLAMA | MISTRAL, {}),
    "mistral tied": (LLAMA | MISTRAL | {"tie_word_embeddings": True, "rope_scaling": SCALING}, {}),
    "mistral window": (LLAMA | MISTRAL | {"sliding_window": 7}, {}),
    "qwen2": (LLAMA | QWEN2, {}),
    "qwen2 v4": (LLAMA | QWEN2 | {"tie_word_embeddings": True}, {"v4": True}),
    "qwen2 window": (LLAMA | QWEN2 | WINDOW | {"max_window_layers": 1, "layer_types": [
        "sliding_attention", "full_attention", "sliding_attention"]}, {}),
    "mixtral window": (MIXTRAL | {"sliding_window": 7}, {}),
    "qwen3 window": (QWEN3 | WINDOW | {"max_window_layers": 2}, {}),
    "qwen3_moe window": (QWEN3_MOE | WINDOW, {}),
    "qwen2_moe window": (LLAMA | QWEN2_MOE | WINDOW | {"max_window_layers": 1}, {}),
    "smollm3 window": (LLAMA | SMOLLM3 | WINDOW | {"no_rope_layers": [0, 0, 1, 0],
                                                   "num_hidden_layers": 4}, {}),
    "starcoder2 window": (LLAMA | STARCODER2 | {"sliding_window": 7}, {}),
    "starcoder2": (LLAMA | STARCODER2, {"max_shard_size": "15KB"}),
    "starcoder2 without biases": (LLAMA | STARCODER2 | {"use_bias": False, "hidden_act": "relu"},
                                  {}),
    "gemma2": (LLAMA | GEMMA2, {}),
    "gemma2 full": (LLAMA | GEMMA2 | {
        "layer_types": ["full_attention", "full_attention", "sliding_attention"],
        "attn_logit_softcapping": None, "final_logit_softcapping": None,
        "query_pre_attn_scalar": 190, "hidden_activation": "silu", "attention_bias": True,
        "tie_word_embeddings": True}, {}),
    "gemma3_text": (LLAMA | GEMMA3 | {
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_scaling": {"rope_type": "linear", "factor": 3.0}}, {}),
    "gemma3_text sixth": (LLAMA | GEMMA3 | {"num_hidden_layers": 7, "attention_bias": True,
                                            "query_pre_attn_scalar": 190,
                                            "final_logit_softcapping": 4.0,
                                            "tie_word_embeddings": True}, {}),
    "gemma3_text v4": (LLAMA | GEMMA3 | {
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_scaling": {"rope_type": "linear", "factor": 3.0}}, {"v4": True}),
    "granite": (LLAMA | GRANITE, {}),
    "granite v4": (LLAMA | GRANITE | {"tie_word_embeddings": True, "rope_scaling": SCALING,
                                      "attention_multiplier": 1}, {"v4": True}),
    "phi3": (LLAMA | PHI3, {}),
    "phi3 window": (LLAMA | PHI3 | {"sliding_window": 5, "rope_scaling": LONGROPE | {
        "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.2], "long_factor": [1.5, 3.5]}}, {}),
    "phi3 v4": (LLAMA | PHI3 | {"tie_word_embeddings": True, "rope_scaling": LONGROPE,
                                "original_max_position_embeddings": 8}, {"v4": True}),
    "gpt_neox": (LLAMA | GPT_NEOX, {"max_shard_size": "15KB"}),
    "gpt_neox sequential": (LLAMA | GPT_NEOX | {
        "use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new",
        "tie_word_embeddings": True}, {}),
    "glm": (LLAMA | GLM4 | {"class": "GlmConfig"}, {}),
    "glm4": (LLAMA | GLM4, {"max_shard_size": "15KB"}),
    "glm4 v4": (LLAMA | GLM4 | {"attention_bias": False, "tie_word_embeddings": True,
                                "partial_rotary_factor": 0.34}, {"v4": True}),
    "smollm3": (LLAMA | SMOLLM3 | {"no_rope_layers": [1, 0, 1], "attention_bias": True,
                                   "mlp_bias": True, "tie_word_embeddings": False}, {}),
    "smollm3 interval": (LLAMA | SMOLLM3 | {"no_rope_layer_interval": 3, "rope_scaling": YARN},
                         {"v4": True}),
    "olmo2": (LLAMA | OLMO2 | {"attention_bias": True}, {"max_shard_size": "15KB"}),
    "olmo2 v4": (LLAMA | OLMO2 | {"num_key_value_heads": 1, "tie_word_embeddings": True,
                                  "rope_scaling": SCALING}, {"v4": True}),
    "olmo3": (LLAMA | OLMO3 | {"head_dim": 64, "attention_bias": True, "rope_theta": None,
                               "rope_parameters": {
        "full_attention": ROUNDED_YARN | {"rope_theta": 700.0, "beta_slow": 0.1853},
        "sliding_attention": {"rope_type": "default", "rope_theta": 90.0}}}, {}),
    "olmo3 fourth": (LLAMA | OLMO3 | {"num_hidden_layers": 5, "layer_types": None,
                                      "tie_word_embeddings": True}, {}),
    "olmo3 v4": (LLAMA | OLMO3 | {
        "head_dim": 64, "rope_scaling": ROUNDED_YARN | {"beta_slow": 0.1472}}, {"v4": True}),
    "gpt_oss": (LLAMA | GPT_OSS | {"rope_theta": None, "rope_parameters": YARN | {
        "rope_theta": 700.0}}, {}),
    "gpt_oss v4": (LLAMA | GPT_OSS | {
        "attention_bias": False, "tie_word_embeddings": True, "rope_scaling": YARN, "layer_types": [
            "full_attention", "sliding_attention", "sliding_attention"]}, {"v4": True}),
    "deepseek_v3": (LLAMA | DEEPSEEK_V3 | {"attention_bias": True, "rope_scaling": YARN | {
        "mscale": 0.7, "mscale_all_dim": 1.3}}, {"max_shard_size": "60KB"}),
    "deepseek_v3 v4": (LLAMA | DEEPSEEK_V3 | {
        "q_lora_rank": None, "rope_interleave": False, "norm_topk_prob": False, "n_group": 2,
        "topk_group": 1, "tie_word_embeddings": True}, {"v4": True, "predicts_more": True}),
    "olmoe": (LLAMA | OLMOE | {"attention_bias": True}, {}),
    "olmoe v4": (LLAMA | OLMOE | {"num_key_value_heads": 1, "norm_topk_prob": True,
                                  "tie_word_embeddings": True, "rope_scaling": SCALING},
                 {"v4": True, "max_shard_size": "25KB"}),
    "qwen2_moe": (LLAMA | QWEN2_MOE, {}),
    "qwen2_moe v4": (LLAMA | QWEN2_MOE | {
        "norm_topk_prob": True, "qkv_bias": False, "num_hidden_layers": 4,
        "decoder_sparse_step": 2, "mlp_only_layers": [0, 1]}, {"v4": True}),
    "qwen3 v4": (QWEN3 | {"rope_theta": 1e6, "num_key_value_heads": 4}, {"v4": True}),
    "qwen3 bf16": (QWEN3 | {"num_key_value_heads": 1, "tie_word_embeddings": True},
                   {"dtype": torch.bfloat16}),
}
# Verified on a grid, besides the oldest families.
VERIFIED = ["seed_oss mapped", "helium mapped", "gpt2", "llama 3.1", "qwen3", "granite", "gpt_neox",
            "glm4", "smollm3", "qwen2_moe", "olmo2", "olmoe", "deepseek_v3",
            *(name for name, case in CASES.items() if case[0].get("sliding_window"))]
LAYOUTS = {
    "alone": [],
    "tensor": ["parallel.tensor=2"],
    "pipeline": ["parallel.pipeline=2"],
    "all": ["parallel.tensor=2", "parallel.pipeline=2", "parallel.sequence=true"],
    "experts": ["parallel.data=2", "parallel.expert=2"],
    "pipedream": ["parallel.pipeline=2", "parallel.schedule=pipedream"],
}


def run(*words, fails=False, merged=False):
    """merged: standard error is part of what is returned."""
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT if merged else subprocess.PIPE)
    assert (done.returncode != 0) == fails, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stderr if fails else done.stdout


def write_json(path, value):
    path.write_text(json.dumps(value))


def rename_as_openai(folder):
    """No prefix, and the masks that old versions stored."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors = {name.removeprefix("transformer."): x for name, x in tensors.items()}
    for i in range(GPT2["n_layer"]):
        tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, 40, 40).tril()
        tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def add_predictor(folder):
    """A layer of multi-token prediction, which transformers does not read, either."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    for name in ("eh_proj", "input_layernorm"):
        tensors[f"model.layers.3.{name}.weight"] = torch.ones(4, 4)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def spell_as_v4(folder):
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:
        if config["model_type"] == "gemma3_text":
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    write_json(folder / "config.json", config)


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")  # others ignore soft-caps
    model.config._experts_implementation = "eager"  # the others know no fp64
    return model.double().eval()


def save(folder, options, how):
    """A model whose weights are large enough to matter; as loaded again, computing in fp64."""
    torch.manual_seed(7)
    options = dict(options)
    named = options.pop("class", None)
    kind = getattr(transformers, named) if named else (
        "n_embd" in options and transformers.GPT2Config or
        "num_experts" in options and transformers.Qwen3MoeConfig or
        "use_sliding_window" in options and transformers.Qwen3Config or
        "num_local_experts" in options and transformers.MixtralConfig or transformers.LlamaConfig)
    model = transformers.AutoModelForCausalLM.from_config(kind(vocab_size=VOCABULARY, **options))
    for name, x in model.named_parameters():
        x.data.normal_(1.0 if x.dim() == 1 and "bias" not in name else 0.0, 0.25)
    model.to(how.get("dtype", torch.float32)).save_pretrained(
        folder, max_shard_size=how.get("max_shard_size", "1GB"))
    sharded = (folder / "model.safetensors.index.json").exists()
    assert sharded == ("max_shard_size" in how), "the case is not what it says"
    if how.get("openai"):
        rename_as_openai(folder)
    if how.get("predicts_more"):
        add_predictor(folder)
    if how.get("v4"):
        spell_as_v4(folder)
    if how.get("mapping"):
        (folder / "echelon-mapping.yaml").write_text(how["mapping"])
    return load(folder)


@torch.no_grad()
def theirs(model, ids):
    return model(torch.tensor([ids])).logits[0]


def ours(folder, ids):
    lines = run(sys.argv[2], folder, *ids).splitlines()
    return torch.tensor([[float(x) for x in line.split()] for line in lines], dtype=torch.float64)


def apart(a, b):
    assert a.shape == b.shape, (a.shape, b.shape)
    return (a - b).abs().max().item()


def loss_of(model, tokens):
    total = 0.0
    for first in range(0, len(tokens) - 1, LENGTH):
        sample = tokens[first:first + LENGTH + 1]
        logits = theirs(model, sample[:-1])
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(sample[1:]),
                                                   reduction="sum").item()
    return total / (len(tokens) - 1)


def check_layout(folder, layout, model, tokens):
    """A run of no step: what it starts from is what it validates and saves."""
    directory = folder / layout
    run(sys.argv[1], "train", folder / "run.yaml", f"log.directory={directory}", *LAYOUTS[layout])
    last = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    loss = next(line["valid_loss"] for line in last if "valid_loss" in line)
    assert abs(loss - loss_of(model, tokens)) < TOLERANCE, (layout, loss)
    saved = directory / "checkpoints" / "step-00000000" / "model"
    stored = safetensors.torch.load_file(saved / "model.safetensors")
    known = {}  # by their names in files
    model.save_pretrained(directory / "theirs")
    for part in (directory / "theirs").glob("*.safetensors"):
        known |= safetensors.torch.load_file(part)
    assert set(stored) == set(known), (layout, set(stored) ^ set(known))
    for name, x in stored.items():
        assert torch.equal(x.double(), known[name]), (layout, name)
    return saved


def check(name, folder):
    options, how = CASES[name]
    rng = random.Random(3)
    text = "".join(rng.choice("abcdefgh \n") for _ in range(300))
    tokens = [*text.encode(), 256]
    (folder / "text.txt").write_text(text)
    model = save(folder / "hf", options, how)
    ids = [rng.randrange(VOCABULARY) for _ in range(40)]
    far = apart(ours(folder / "hf", ids), theirs(model, ids))
    assert far < TOLERANCE, (name, far)
    run(sys.argv[1], "data", folder / "text.txt", folder / "text")
    (folder / "run.yaml").write_text(
        f"model:\n  init_from: {folder}/hf\n"
        f"data:\n  train: {folder}/text\n  valid: {folder}/text\n  sequence_length: {LENGTH}\n"
        "training:\n  steps: 0\n  global_batch_size: 4\noptimizer:\n  learning_rate: 0.01\n"
        "parallel:\n  comm: local\n  threads: 1\nlog:\n  directory: unused\n")
    run(sys.argv[1], "plan", folder / "run.yaml")
    family = name.split()[0]
    layouts = {
        "mixtral": ["alone", "tensor", "pipeline"],
        "qwen2_moe": ["tensor", "experts"],
        "olmoe": ["tensor", "experts"],
        "deepseek_v3": ["tensor", "pipeline", "experts"],
        "gpt_oss": ["alone", "tensor", "pipeline", "experts"],
        "qwen3_moe": ["alone", "tensor", "pipeline", "experts"],
    }.get(family, ["tensor"])
    most = ["alone", "tensor", "pipeline", "all", "pipedream"]
    for layout in {"gpt2": most[:-1], "llama 3.1": most, "qwen3": most}.get(name, layouts):
        saved = check_layout(folder, layout, model, tokens)
    back = apart(ours(saved, ids), theirs(load(saved), ids))
    assert back < TOLERANCE, (name, back)
    if name in VERIFIED:
        run(sys.argv[1], "verify", folder / "run.yaml", "parallel.tensor=2", "parallel.pipeline=2")
    if name == "qwen3_moe":
        run(sys.argv[1], "verify", folder / "run.yaml", *LAYOUTS["experts"], "parallel.pipeline=2")
    print(f"{name}: logits within {far:.1e}, and back within {back:.1e}")


QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def words_of(options):
    """How the family's tokenizers cut texts into words."""
    pieces = tokenizers.pre_tokenizers
    if options is not QWEN3:
        return pieces.ByteLevel(add_prefix_space=False)
    return pieces.Sequence([pieces.Split(tokenizers.Regex(QWEN_WORDS), "isolated"),
                            pieces.ByteLevel(add_prefix_space=False, use_regex=False)])


def make_chat(folder, options):
    """A chat model's companions, saved by transformers itself."""
    save(folder, options | {"eos_token_id": [256, 257], "pad_token_id": 258}, {})
    vocabulary = {
        c: i for i, c in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    }
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    inner.pre_tokenizer = words_of(options)
    if options is QWEN3:
        inner.normalizer = tokenizers.normalizers.NFC()
    inner.decoder = tokenizers.decoders.ByteLevel()
    names = ["<|endoftext|>", "<|turn|>", "<|pad|>"]
    inner.add_special_tokens(names)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=names[0], bos_token=names[0], pad_token=names[2],
        additional_special_tokens=[names[1]], model_max_length=50, padding_side="left")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|turn|>{% endfor %}")
    tokenizer.save_pretrained(folder)
    transformers.GenerationConfig(eos_token_id=[256, 257], bos_token_id=256, pad_token_id=258,
                                  do_sample=True, top_p=0.7).save_pretrained(folder)


def what_is_said(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    talk = [{"role": "user", "content": "Is it so?"}, {"role": "assistant", "content": "Yes."}]
    generation = transformers.GenerationConfig.from_pretrained(folder).to_dict()
    config = transformers.AutoConfig.from_pretrained(folder).to_dict()
    said = {key: getattr(tokenizer, key) for key in (
        "chat_template", "pad_token", "eos_token", "bos_token", "model_max_length", "padding_side",
        "all_special_tokens")}
    return said | {"talk": tokenizer.apply_chat_template(talk, tokenize=False),
                   "ids": tokenizer("naïve <|turn|> text")["input_ids"],
                   "generation": generation, "config": {
                       key: value for key, value in config.items() if key not in (
                           "dtype", "torch_dtype", "_name_or_path", "transformers_version")}}


def check_chat(family, folder):
    make_chat(folder / "hf", {"llama": LLAMA, "qwen3": QWEN3}[family])
    first = what_is_said(folder / "hf")
    assert first["pad_token"] == "<|pad|>" and first["talk"].count("<|turn|>") == 2, first
    assert first["generation"]["eos_token_id"] == [256, 257], first
    (folder / "text.txt").write_text("some text to train on, " * 20)
    run(sys.argv[1], "data", folder / "text.txt", folder / "text", "--tokenizer", folder / "hf")
    (folder / "run.yaml").write_text(
        f"model:\n  init_from: {folder}/hf\n"
        f"data:\n  train: {folder}/text\n  sequence_length: {LENGTH}\n"
        "training:\n  steps: 0\n  global_batch_size: 4\noptimizer:\n  learning_rate: 0.01\n"
        f"parallel:\n  comm: local\n  threads: 1\nlog:\n  directory: {folder}/run\n")
    for steps in (0, 1):
        run(sys.argv[1], "train", folder / "run.yaml", f"training.steps={steps}")
        saved = folder / f"run/checkpoints/step-{steps:08d}/model"
        now = what_is_said(saved)
        for key, value in first.items():
            assert now[key] == value, (steps, key, value, now[key])
        load(saved)
        if steps == 0:
            (folder / "hf").rename(folder / "away")
    run(sys.argv[1], "convert", folder / "away", folder / "converted")
    assert what_is_said(folder / "converted") == first
    print(f"{family} chat model: companions are the same")


def check_refusals(folder):
    """What is wrong is said by name."""
    save(folder / "hf", *CASES["llama 3.1"])
    index_path, config_path = folder / "hf/model.safetensors.index.json", folder / "hf/config.json"
    index, config = (json.loads(path.read_text()) for path in (index_path, config_path))

    def refused(part, **changed):
        for key, value in changed.items():
            write_json({"index": index_path, "config": config_path}[key], value)
        said = run(sys.argv[1], "eval", folder / "hf", "--data", "none", fails=True)
        assert part in said and said.count("\n") == 1, (part, said)
        write_json(index_path, index)
        write_json(config_path, config)

    name = "model.norm.weight"
    shards = index["weight_map"]
    shard = shards[name]
    other = next(x for x in shards.values() if x != shard)
    refused("must be a file's name", index={"weight_map": shards | {name: f"../hf/{shard}"}})
    refused("lost.safetensors is not there",
            index={"weight_map": shards | {name: "lost.safetensors"}})
    refused(name, index={"weight_map": shards | {name: other}})
    refused("model.extra.weight", index={"weight_map": shards | {"model.extra.weight": shard}})
    refused("hidden_act", config=config | {"hidden_act": "relu"})
    refused("self_attn.q_proj.bias", config=config | {"attention_bias": True})
    refused("it is [64, 32]", config=config | {"head_dim": 16})
    refused("sliding_window", config=config | {"model_type": "mistral", "sliding_window": 0})
    refused("clipped queries", config=config | {"model_type": "olmoe", "clip_qkv": 8.0})
    refused("DeltaNet", config=config | {"model_type": "qwen3_next"})
    refused("ntk", config=config | {"rope_parameters": {"rope_type": "ntk", "factor": 2.0}})
    refused("[270, 32]", config=config | {"vocab_size": 280})
    refused("model.layers.2", config=config | {"num_hidden_layers": 2})
    refused("no tensor 'model.layers.3", config=config | {"num_hidden_layers": 4})
    refused("hidden_size", config=config | {"hidden_size": 10**9})
    refused("quantization_config", config=config | {"quantization_config": {"bits": 4}})


def check_more_tokens(folder):
    """New rows are the mean of the others, and transformers loads what a run with them saves."""
    for family, options in (("gpt2", GPT2), ("llama", LLAMA)):
        here = folder / family
        model = save(here / "hf", options, {})
        (here / "text.txt").write_text("some text to train on, " * 20)
        run(sys.argv[1], "data", here / "text.txt", here / "text")
        (here / "run.yaml").write_text(
            f"model:\n  init_from: {here}/hf\n"
            f"data:\n  train: {here}/text\n  sequence_length: {LENGTH}\n"
            "training:\n  steps: 1\n  global_batch_size: 4\noptimizer:\n  learning_rate: 0\n"
            f"parallel:\n  comm: local\n  threads: 1\nlog:\n  directory: {here}/run\n")
        run(sys.argv[1], "train", here / "run.yaml", f"model.vocab_size={VOCABULARY + 5}",
            "model.new_rows_from=[3,7]", "parallel.tensor=2")
        saved = here / "run/checkpoints/step-00000001/model"
        grown = load(saved)
        tables = [(model.get_input_embeddings().weight, grown.get_input_embeddings().weight),
                  (model.get_output_embeddings().weight, grown.get_output_embeddings().weight)]
        for was, now in tables:
            assert torch.equal(now[:VOCABULARY], was), family
            mean = was[[3, 7]].mean(0).float().double()
            assert now.shape[0] == VOCABULARY + 5 and (now[VOCABULARY:] == mean).all(), family
        ids = [0, 5, VOCABULARY + 4, 9]
        far = apart(ours(saved, ids), theirs(grown, ids))
        assert far < TOLERANCE, (family, far)
    print("a larger vocabulary: rows are the means")


def quantize_to_fp8(folder, to):
    """As DeepSeek's folders are: blocks of 128 x 128 with a scale each. Returns what each of these
    tensors stands for."""
    stored, tensors, meant = safetensors.torch.load_file(folder / "model.safetensors"), {}, {}
    for name, x in stored.items():
        if "_proj" not in name:
            tensors[name] = x
            continue
        rows, columns = (size // 128 for size in x.shape)
        blocks = x.view(rows, 128, columns, 128)
        scale = blocks.abs().amax((1, 3)) / 448
        tensors[name] = (blocks / scale[:, None, :, None]).view(x.shape).to(torch.float8_e4m3fn)
        tensors[name + "_scale_inv"] = scale
        rounded = tensors[name].float().view(rows, 128, columns, 128)
        meant[name] = (rounded * scale[:, None, :, None]).view(x.shape)
    to.mkdir()
    safetensors.torch.save_file(tensors, to / "model.safetensors", {"format": "pt"})
    write_json(to / "config.json", json.loads((folder / "config.json").read_text()) | {
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
                                "weight_block_size": [128, 128]}})
    return meant


def check_conversions(folder):
    """The Python in errors about weights that are not read converts them."""
    model = save(folder / "hf", LLAMA | {"hidden_size": 128, "intermediate_size": 128}, {})
    (folder / "bin").mkdir()
    (folder / "bin/config.json").write_bytes((folder / "hf/config.json").read_bytes())
    torch.save(model.float().state_dict(), folder / "bin/pytorch_model.bin")
    model.double()
    rounded = quantize_to_fp8(folder / "hf", folder / "fp8")
    ids = [0, 5, 9, 7]
    for name, changed in (("bin", {}), ("fp8", rounded)):
        if name == "fp8" and not importlib.util.find_spec("accelerate"):
            print("skipped: transformers converts fp8 only with accelerate")
            continue
        said = run(sys.argv[1], "eval", folder / name, "--data", "none", fails=True)
        python = said.partition("in Python: ")[2].replace('"NEW"', repr(f"{folder}/{name} new"))
        assert python, said
        run(sys.executable, "-c", python)
        model.load_state_dict(model.state_dict() | changed)
        wanted = theirs(model, ids)
        far = apart(ours(folder / f"{name} new", ids), wanted) / wanted.abs().max().item()
        assert far < 1e-5, (name, far)
        print(f"{name}: converted, logits within {far:.1e} of the largest")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            check(name, pathlib.Path(scratch))
    for check_more in (functools.partial(check_chat, "llama"),
                       functools.partial(check_chat, "qwen3"), check_more_tokens,
                       check_conversions, check_refusals):
        with tempfile.TemporaryDirectory() as scratch:
            check_more(pathlib.Path(scratch))


if __name__ == "__main__":
    main()
