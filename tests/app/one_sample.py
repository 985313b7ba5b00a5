# SPDX-License-Identifier: Apache-2.0
"""For tests beside PyTorch whose data is one sample: a text, a model of transformers, runs from it.

Importing it ends the test with exit code 77 where a package is missing.
"""
import json
import subprocess
import sys

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

TEXT = "what it says: "
IDS = torch.tensor([[*TEXT.encode(), 256]])  # and the end of the document
VOCABULARY, STEPS = 257, 8
GPT2 = {"n_embd": 16, "n_layer": 4, "n_head": 4, "n_positions": 40, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": False}


def run(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stdout


def make_model(folder, options):
    """Saves it in fp32. Gains and weights are large enough to matter; a reference in fp64."""
    torch.manual_seed(3)
    kind = (transformers.GPT2LMHeadModel, transformers.GPT2Config) if "n_embd" in options else (
        transformers.LlamaForCausalLM, transformers.LlamaConfig)
    model = kind[0](kind[1](vocab_size=VOCABULARY, bos_token_id=256, eos_token_id=256, **options))
    for name, x in model.named_parameters():
        x.data.normal_(1.0 if x.dim() == 1 and "bias" not in name else 0.0, 0.2)
    model.save_pretrained(folder / "hub")
    return model.double()


def prepare(echelon, folder, optimizer, parallel):
    """Writes the tokens and run.yaml."""
    (folder / "text.txt").write_text(TEXT)
    run(echelon, "data", folder / "text.txt", folder / "text", "--tokenizer", "bytes")
    (folder / "run.yaml").write_text(json.dumps({
        "model": {"init_from": str(folder / "hub")},
        "data": {"train": str(folder / "text"), "sequence_length": len(TEXT),
                 "tokenizer": "bytes"},
        "training": {"steps": STEPS, "global_batch_size": 1, "micro_batch_size": 1},
        "optimizer": {"schedule": "constant", "weight_decay": 0} | optimizer,
        "precision": {"compute": "fp64"},
        "parallel": {"comm": "local", "threads": 1} | parallel}))


def train(echelon, folder, name, ranks, *words):
    """The weights after STEPS steps."""
    run(echelon, "train", folder / "run.yaml", "--ranks", ranks, f"log.directory={folder / name}",
        *words)
    return safetensors.torch.load_file(
        folder / name / "checkpoints" / f"step-{STEPS:08d}" / "model" / "model.safetensors")


def loss_of(model):
    logits = model(IDS[:, :-1]).logits[0]
    return torch.nn.functional.cross_entropy(logits, IDS[0, 1:])
