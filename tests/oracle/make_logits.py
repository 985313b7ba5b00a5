# SPDX-License-Identifier: Apache-2.0
"""Small models as Hugging Face transformers saves them, and their logits, for tests without Python.

    make_logits.py FOLDER          writes FOLDER/gpt2_openai/, llama31/ and qwen3/, and their logits
    make_logits.py --check FOLDER  checks that the logits there are those of the models there

gpt2_openai has OpenAI's old names and masks in one file; llama31 has shards in bf16, grouped
queries and the positions of Llama 3.1; qwen3 has heads wider than their share of the width.
NAME.safetensors has `ids` and `logits`, computed in fp64. Exits 77 where a package is missing."""

import pathlib
import sys

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

VOCABULARY = 260  # bytes need 257
IDS = [72, 101, 108, 108, 111, 255, 0, 256, 3, 17]
GPT2 = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 12, "layer_norm_epsilon": 0.01}
LLAMA = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 12,
         "rms_norm_eps": 0.02, "rope_theta": 300.0,
         "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 8}}

QWEN3 = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 20,
         "max_position_embeddings": 12, "rms_norm_eps": 0.02, "rope_theta": 300.0}


def fill(model):
    for name, x in model.named_parameters():
        x.data.normal_(1.0 if x.dim() == 1 and "bias" not in name else 0.0, 0.3)
    return model


def save_gpt2(folder):
    config = transformers.GPT2Config(vocab_size=VOCABULARY, bos_token_id=256, eos_token_id=256,
                                     **GPT2)
    model = fill(transformers.GPT2LMHeadModel(config))
    model.save_pretrained(folder)
    tensors = {name.removeprefix("transformer."): x.clone()
               for name, x in model.named_parameters()}
    for i in range(GPT2["n_layer"]):
        tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, 12, 12).tril()
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def save_llama(folder):
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, bos_token_id=256, eos_token_id=256,
                                      **LLAMA)
    fill(transformers.LlamaForCausalLM(config)).to(torch.bfloat16).save_pretrained(
        folder, max_shard_size="9KB")


def save_qwen3(folder):
    config = transformers.Qwen3Config(vocab_size=VOCABULARY, bos_token_id=256, eos_token_id=256,
                                      **QWEN3)
    fill(transformers.Qwen3ForCausalLM(config)).save_pretrained(folder)


@torch.no_grad()
def logits_of(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.double().eval()(torch.tensor([IDS])).logits[0]


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(20)
    parent = pathlib.Path(sys.argv[-1])
    for name, save in ("gpt2_openai", save_gpt2), ("llama31", save_llama), (
            "qwen3", save_qwen3):
        recorded = parent / f"{name}.safetensors"
        if sys.argv[1] == "--check":
            logits = safetensors.torch.load_file(recorded)["logits"]
            assert (logits - logits_of(parent / name)).abs().max() < 1e-6, name
            continue
        save(parent / name)
        (parent / name / "generation_config.json").unlink(missing_ok=True)
        safetensors.torch.save_file({"ids": torch.tensor(IDS), "logits": logits_of(parent / name)},
                                    recorded)


main()
