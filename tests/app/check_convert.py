# SPDX-License-Identifier: Apache-2.0
"""Other programs' model files through `echelon convert`, against Hugging Face transformers.

    check_convert.py ECHELON PRINT_LOGITS

Writes random models of transformers in the formats that llm.c and llama2.c document, and as folders
in several forms. `echelon convert` converts them, and the results must have the logits of the
original model, in transformers and in the program. Exits 77 where a package is missing.
"""
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

VOCABULARY, PADDED = 270, 384
TOLERANCE = 1e-4
GPT2 = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40}
LLAMA = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 56, "max_position_embeddings": 50,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0}


def run(*words, fails=False):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stderr if fails else done.stdout


def make(options):
    torch.manual_seed(11)
    kind = (transformers.GPT2LMHeadModel, transformers.GPT2Config) if "n_embd" in options else (
        transformers.LlamaForCausalLM, transformers.LlamaConfig)
    model = kind[0](kind[1](vocab_size=VOCABULARY, **options))
    for name, x in model.named_parameters():
        x.data.normal_(1.0 if x.dim() == 1 and "bias" not in name else 0.0, 0.25)
    return model


def raw(x, dtype=torch.float32):
    x = x.detach().contiguous().to(dtype)
    return (x.view(torch.int16) if dtype == torch.bfloat16 else x).numpy().tobytes()


def write_llmc(model, path, dtype):
    """As write_model in llm.c's train_gpt2.py: linear weights (out,in), the vocabulary padded."""
    w = dict(model.named_parameters())
    c = model.config
    header = [20240326, 3 if dtype == torch.float32 else 5, c.n_positions, c.vocab_size, c.n_layer,
              c.n_head, c.n_embd, PADDED]
    padding = torch.full((PADDED - VOCABULARY, c.n_embd), 9.0)
    kinds = ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
             "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias",
             "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"]
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", *header, *[0] * 248))
        file.write(raw(torch.cat([w["transformer.wte.weight"], padding]), dtype))
        file.write(raw(w["transformer.wpe.weight"], dtype))
        for kind in kinds:
            for i in range(c.n_layer):
                x = w[f"transformer.h.{i}.{kind}"]
                file.write(raw(x.t() if x.dim() == 2 else x, dtype))
        for end in "weight", "bias":
            file.write(raw(w[f"transformer.ln_f.{end}"], dtype))


def interleave(x, heads):
    """From halves of a head to pairs side by side, as Meta has them."""
    return x.view(heads, 2, -1, x.shape[1]).transpose(1, 2).reshape(x.shape)


def write_llama2c(model, path, legacy):
    """As legacy_export and version1_export in llama2.c's export.py."""
    w = dict(model.named_parameters())
    c = model.config
    shared = c.tie_word_embeddings
    layers = range(c.num_hidden_layers)

    def of_layers(name, heads=0):
        xs = [w[f"model.layers.{i}.{name}.weight"] for i in layers]
        return [interleave(x, heads) if heads else x for x in xs]

    attention = [*of_layers("self_attn.q_proj", c.num_attention_heads),
                 *of_layers("self_attn.k_proj", c.num_key_value_heads),
                 *of_layers("self_attn.v_proj"), *of_layers("self_attn.o_proj")]
    mlp = [*of_layers("mlp.gate_proj"), *of_layers("mlp.down_proj"), *of_layers("mlp.up_proj")]
    first, second = of_layers("input_layernorm"), of_layers("post_attention_layernorm")
    table, last = w["model.embed_tokens.weight"], w["model.norm.weight"]
    angles = torch.full((c.max_position_embeddings, c.head_dim // 2), 0.5)
    if legacy:
        tensors = [table, *first, *attention, *second, *mlp, last, angles, angles]
    else:
        tensors = [*first, *second, last, table, *attention, *mlp]
    if not shared:
        tensors.append(w["lm_head.weight"])
    vocabulary = -c.vocab_size if legacy and not shared else c.vocab_size
    numbers = struct.pack("<7i", c.hidden_size, c.intermediate_size, c.num_hidden_layers,
                          c.num_attention_heads, c.num_key_value_heads, vocabulary,
                          c.max_position_embeddings)
    with open(path, "wb") as file:
        if legacy:
            file.write(numbers)
        else:
            head = struct.pack("<Ii", 0x616b3432, 1) + numbers + struct.pack("<B", shared)
            file.write(head.ljust(256, b"\0"))
        for x in tensors:
            file.write(raw(x))


@torch.no_grad()
def theirs(model, ids):
    return model(torch.tensor([ids])).logits[0]


def ours(folder, ids):
    lines = run(sys.argv[2], folder, *ids).splitlines()
    return torch.tensor([[float(x) for x in line.split()] for line in lines], dtype=torch.float64)


def load(folder, dtype):
    """What transformers reads, all of it used and nothing made up; computing in fp64."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32)
    for problem, names in info.items():
        assert not names, (problem, names)
    stored = transformers.AutoConfig.from_pretrained(folder).dtype
    assert stored == dtype, (stored, dtype)
    return model.double().eval()


def rounded(model, dtype):
    for x in model.parameters():
        x.data = x.data.to(dtype).float()
    return model.double().eval()


def check(name, options, write, dtype=torch.float32, words=()):
    ids = [random.Random(5).randrange(VOCABULARY) for _ in range(40)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        model = make(options)
        write(model, folder / "in")
        said = run(sys.argv[1], "convert", folder / "in", folder / "out", *words)
        assert f"{sum(x.numel() for x in model.parameters()):,} parameters" in said, said
        wanted = theirs(rounded(model, dtype), ids)
        reads = ours(folder / "out", ids), theirs(load(folder / "out", dtype), ids)
        far = max((read - wanted).abs().max().item() for read in reads)
        assert far < TOLERANCE, (name, far)
        run(sys.argv[1], "convert", folder / "in", folder / "out", fails=True)
        assert sorted(x.name for x in folder.iterdir()) == ["in", "out"]
        if (folder / "in").is_file():
            check_cut(folder)
    print(f"{name}: within {far:.1e}")


def check_cut(folder):
    whole = (folder / "in").read_bytes()
    for n in 0, 3, 20, 200, 1000, 5000, len(whole) - 1:
        (folder / "cut").write_bytes(whole[:n])
        said = run(sys.argv[1], "convert", folder / "cut", folder / "none", fails=True)
        assert said.count("\n") == 1 and not (folder / "none").exists(), said
    (folder / "cut").write_bytes(whole + b"x")
    run(sys.argv[1], "convert", folder / "cut", folder / "none", fails=True)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    half = torch.bfloat16
    tied = LLAMA | {"tie_word_embeddings": True}
    check("llm.c fp32", GPT2, lambda m, path: write_llmc(m, path, torch.float32))
    check("llm.c bf16", GPT2, lambda m, path: write_llmc(m, path, half), half)
    check("llm.c fp32 to bf16", GPT2, lambda m, path: write_llmc(m, path, torch.float32), half,
          ["--dtype", "bf16"])
    check("llama2.c", LLAMA, lambda m, path: write_llama2c(m, path, False))
    check("llama2.c shared", tied, lambda m, path: write_llama2c(m, path, False))
    check("llama2.c legacy", LLAMA, lambda m, path: write_llama2c(m, path, True))
    check("llama2.c legacy shared", tied, lambda m, path: write_llama2c(m, path, True))
    check("folder of shards", LLAMA,
          lambda m, path: m.save_pretrained(path, max_shard_size="10KB"))
    check("folder to fp16", GPT2, lambda m, path: m.save_pretrained(path), torch.float16,
          ["--dtype", "fp16"])


main()
