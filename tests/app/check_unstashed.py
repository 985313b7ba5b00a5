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
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True

from one_sample import GPT2, STEPS, loss_of, make_model, prepare, train

RATE = 0.05
LLAMA = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4,
         "intermediate_size": 24, "max_position_embeddings": 40, "tie_word_embeddings": False}
# transformers computes norms and angles of a Llama in fp32 whatever the model is in.
TOLERANCES = {"gpt2": 1e-12, "llama": 1e-6}
PARTITIONS = {"gpt2": [1, 1, 1, 1], "llama": [1, 3]}


def stage_of(name, layers_of):
    """Which stage has the parameter: embedding on the first, final norm and head on the last."""
    for part in name.split("."):
        if part.isdigit():
            return next(s for s in range(len(layers_of)) if int(part) < sum(layers_of[:s + 1]))
    return 0 if "wte" in name or "wpe" in name or "embed_tokens" in name else len(layers_of) - 1


def replay(model, layers_of, stashing):
    """The weights after STEPS steps of plain gradient descent."""
    params = dict(model.named_parameters())
    versions = [{name: x.detach().clone() for name, x in params.items()}]

    def put(version_of):
        for name, x in params.items():
            x.data.copy_(versions[version_of(name)][name])

    for t in range(STEPS):
        late = {name: max(0, t - (len(layers_of) - 1 - stage_of(name, layers_of)))
                for name in params}
        put(lambda name: late[name])
        loss = loss_of(model)
        model.zero_grad()
        if not stashing:
            put(lambda name: t)
        loss.backward()
        versions.append({name: versions[t][name] - RATE * x.grad for name, x in params.items()})
    return versions[-1]


def apart(ours, theirs):
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    far = [float((ours[name] - x).abs().max() / x.abs().max()) for name, x in theirs.items()]
    assert all(x == x for x in far), "a weight is NaN"
    return max(far)


def check(echelon, root, family, options, layers_of):
    folder = root / f"{family}-{len(layers_of)}"
    folder.mkdir()
    model = make_model(folder, options)
    prepare(echelon, folder, {"name": "sgd", "learning_rate": RATE, "clip_norm": 0},
            {"schedule": "pipedream", "flush_every": STEPS,
             "pipeline": len(layers_of), "partition": layers_of})
    start = {name: x.detach().clone() for name, x in model.named_parameters()}
    results = {}
    for stashing in (True, False):
        for name, x in model.named_parameters():
            x.data.copy_(start[name])
        theirs = replay(model, layers_of, stashing)
        ours = train(echelon, folder, f"stashing-{stashing}", len(layers_of),
                     f"parallel.weight_stashing={str(stashing).lower()}")
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
