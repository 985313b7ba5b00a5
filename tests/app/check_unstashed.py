# SPDX-License-Identifier: Apache-2.0
"""PipeDream without weight stashing, against PyTorch.

    check_unstashed.py ECHELON

The ablation of Narayanan et al. 2019: a backward runs on what its forward has made, but with the
newest weights. In PyTorch that is a forward, weights that are overwritten without autograd's
knowledge, and a backward; tensors saved by the forward stay. The data is a single sample, so every
micro-batch is the same, and only the versions of the weights differ from step to step. In step t
the forward of stage i of n (from 0) reads the weights of step t - (n - 1 - i), and its backward
those of step t. Weights after one span are compared in fp64.

Exits 77 where a package is missing.
"""
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
VOCABULARY, STEPS, RATE = 257, 8, 0.05
GPT2 = {"n_embd": 16, "n_layer": 4, "n_head": 4, "n_positions": 40, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": False}
LLAMA = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4,
         "intermediate_size": 24, "max_position_embeddings": 40, "tie_word_embeddings": False}
# transformers computes norms and angles of a Llama in fp32 whatever the model is in.
TOLERANCES = {"gpt2": 1e-12, "llama": 1e-6}
PARTITIONS = {"gpt2": [1, 1, 1, 1], "llama": [1, 3]}


def run(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stdout


def make_model(folder, options):
    """Gains and weights that are large enough to matter; a reference in fp64."""
    torch.manual_seed(3)
    kind = (transformers.GPT2LMHeadModel, transformers.GPT2Config) if "n_embd" in options else (
        transformers.LlamaForCausalLM, transformers.LlamaConfig)
    model = kind[0](kind[1](vocab_size=VOCABULARY, bos_token_id=256, eos_token_id=256, **options))
    for name, x in model.named_parameters():
        x.data.normal_(1.0 if x.dim() == 1 and "bias" not in name else 0.0, 0.2)
    model.save_pretrained(folder)
    return model.double()


def stage_of(name, layers_of):
    """Which stage has the parameter: embedding on the first, final norm and head on the last."""
    for part in name.split("."):
        if part.isdigit():
            return next(s for s in range(len(layers_of)) if int(part) < sum(layers_of[:s + 1]))
    return 0 if "wte" in name or "wpe" in name or "embed_tokens" in name else len(layers_of) - 1


def replay(model, layers_of, stashing):
    """The weights after STEPS steps of plain gradient descent."""
    ids = torch.tensor([[*TEXT.encode(), 256]])  # and the end of the document
    params = dict(model.named_parameters())
    versions = [{name: x.detach().clone() for name, x in params.items()}]

    def put(version_of):
        for name, x in params.items():
            x.data.copy_(versions[version_of(name)][name])

    for t in range(STEPS):
        late = {name: max(0, t - (len(layers_of) - 1 - stage_of(name, layers_of)))
                for name in params}
        put(lambda name: late[name])
        logits = model(ids[:, :-1]).logits[0]
        loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:])
        model.zero_grad()
        if not stashing:
            put(lambda name: t)
        loss.backward()
        versions.append({name: versions[t][name] - RATE * x.grad for name, x in params.items()})
    return versions[-1]


def train(echelon, folder, name, layers_of, stashing):
    run(echelon, "train", folder / "run.yaml", "--ranks", len(layers_of), f"log.directory={name}",
        f"parallel.pipeline={len(layers_of)}", f"parallel.partition={layers_of}",
        f"parallel.weight_stashing={str(stashing).lower()}")
    return safetensors.torch.load_file(
        folder / name / "checkpoints" / f"step-{STEPS:08d}" / "model" / "model.safetensors")


def apart(ours, theirs):
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    return max(float((ours[name] - x).abs().max() / x.abs().max()) for name, x in theirs.items())


def check(echelon, root, family, options, layers_of):
    folder = root / f"{family}-{len(layers_of)}"
    folder.mkdir()
    model = make_model(folder / "hub", options)
    (folder / "text.txt").write_text(TEXT)
    run(echelon, "data", folder / "text.txt", folder / "text", "--tokenizer", "bytes")
    (folder / "run.yaml").write_text(json.dumps({
        "model": {"init_from": str(folder / "hub")},
        "data": {"train": str(folder / "text"), "sequence_length": len(TEXT),
                 "tokenizer": "bytes"},
        "training": {"steps": STEPS, "global_batch_size": 1, "micro_batch_size": 1},
        "optimizer": {"name": "sgd", "learning_rate": RATE, "schedule": "constant",
                      "weight_decay": 0, "clip_norm": 0},
        "precision": {"compute": "fp64"},
        "parallel": {"comm": "local", "threads": 1, "schedule": "pipedream",
                     "flush_every": STEPS}}))
    start = {name: x.detach().clone() for name, x in model.named_parameters()}
    results = {}
    for stashing in (True, False):
        for name, x in model.named_parameters():
            x.data.copy_(start[name])
        theirs = replay(model, layers_of, stashing)
        ours = train(echelon, folder, f"{folder}/stashing-{stashing}", layers_of, stashing)
        error = apart(ours, theirs)
        assert (
            error < TOLERANCES[family]
        ), f"{family}, {layers_of}, stashing {stashing}: {error:.1e}"
        results[stashing] = theirs
    assert apart(results[False], results[True]) > 1e-4, "the ablation makes no difference"


def main():
    with tempfile.TemporaryDirectory() as root:
        for family, options in (("gpt2", GPT2), ("llama", LLAMA)):
            check(sys.argv[1], pathlib.Path(root), family, options, PARTITIONS[family])


main()
