# SPDX-License-Identifier: Apache-2.0
"""Frozen parameters (optimizer.rates = PATTERN=0), against PyTorch's requires_grad = False.

    check_frozen.py ECHELON

AdamW in fp64 with gradient clipping, whose norm counts the trained parameters alone. The data is a
single sample. Weights after the last step are compared; frozen ones keep their bits.

Exits 77 where a package is missing.
"""
import fnmatch
import json
import pathlib
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

TEXT = "what it says: "
VOCABULARY, STEPS, RATE, CLIP = 257, 8, 0.01, 0.5
OPTIONS = {"n_embd": 16, "n_layer": 4, "n_head": 4, "n_positions": 40, "resid_pdrop": 0.0,
           "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": False}
# Patterns, the last of which counts; and layouts.
CASES = [("*wte*=0 *wpe*=0 *.0.*=0 *.1.*=0", ["parallel.pipeline=2"]),
         ("*=0 *ln_*=1 *attn.c_attn.bias=0.5", []),
         ("*mlp*=0 *.bias=1 *.1.*=0", ["parallel.tensor=2"]),
         ("*.weight=0", ["parallel.data=1", "memory.recompute=full"])]


def run(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stdout


def factor_of(name, rates):
    factor = 1.0
    for word in rates.split():
        pattern, _, number = word.rpartition("=")
        if fnmatch.fnmatchcase(name, pattern):
            factor = float(number)
    return factor


def train_theirs(start, rates):
    """The weights after STEPS steps."""
    model = transformers.GPT2LMHeadModel(start.config).double()
    model.load_state_dict(start.state_dict())
    ids = torch.tensor([[*TEXT.encode(), 256]])  # and the end of the document
    groups = []
    for name, x in model.named_parameters():
        x.requires_grad = factor_of(name, rates) > 0
        if x.requires_grad:
            groups.append({"params": [x], "lr": RATE * factor_of(name, rates)})
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    for _ in range(STEPS):
        logits = model(ids[:, :-1]).logits[0]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, ids[0, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return {name: x.detach() for name, x in model.named_parameters()}


def main():
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root)
        torch.manual_seed(3)
        start = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=VOCABULARY, bos_token_id=256, eos_token_id=256, **OPTIONS))
        for name, x in start.named_parameters():
            x.data.normal_(1.0 if "ln_" in name and "weight" in name else 0.0, 0.2)
        start.save_pretrained(folder / "hub")
        (folder / "text.txt").write_text(TEXT)
        run(sys.argv[1], "data", folder / "text.txt", folder / "text", "--tokenizer", "bytes")
        (folder / "run.yaml").write_text(json.dumps({
            "model": {"init_from": str(folder / "hub")},
            "data": {"train": str(folder / "text"), "sequence_length": len(TEXT),
                     "tokenizer": "bytes"},
            "training": {"steps": STEPS, "global_batch_size": 1, "micro_batch_size": 1},
            "optimizer": {"name": "adamw", "learning_rate": RATE, "schedule": "constant",
                          "weight_decay": 0, "clip_norm": CLIP},
            "precision": {"compute": "fp64"}, "parallel": {"comm": "local", "threads": 1}}))
        before = {name: x.detach().double() for name, x in start.named_parameters()}
        for i, (rates, words) in enumerate(CASES):
            ranks = 2 if any(word.endswith("=2") for word in words) else 1
            run(sys.argv[1], "train", folder / "run.yaml", "--ranks", ranks,
                f"log.directory={folder}/{i}", f"optimizer.rates={rates}", *words)
            ours = safetensors.torch.load_file(
                folder / str(i) / "checkpoints" / f"step-{STEPS:08d}" / "model" /
                "model.safetensors")
            theirs = train_theirs(start, rates)
            assert set(ours) == set(theirs), set(ours) ^ set(theirs)
            moved = 0
            for name, x in theirs.items():
                error = float((ours[name] - x).abs().max())
                assert error < 1e-10, f"{rates}: {name} differs by {error:.1e}"
                if factor_of(name, rates) > 0:
                    moved += not torch.equal(ours[name], before[name])
                else:
                    assert torch.equal(ours[name], before[name]), f"{rates}: {name} moved"
            assert moved > 3, rates


main()
