# SPDX-License-Identifier: Apache-2.0
"""Each family's folders in training, in sampling and with changed keys, beside transformers.

    check_families.py ECHELON PRINT_LOGITS [CASE ...]

The folders are those of check_init_from.py. For each folder

    ten training steps with AdamW have the losses of a loop in PyTorch over transformers' model,
    greedy sampling writes the ids of transformers' generate(),
    each value of config.json is changed in several ways, one at a time, and removed: the program
    refuses the folder, or its logits change, and then they are transformers' logits of the same
    folder; a change without effect must be one of UNUSED, which says why.

Exits 77 where a package is missing.
"""
import copy
import fnmatch
import json
import os
import pathlib
import random
import re
import struct
import sys
import tempfile

sys.dont_write_bytecode = True

from check_init_from import CASES, VOCABULARY, apart, run, save, theirs, write_json
import torch
import transformers

STEPS, BATCH, SAMPLES, LENGTH = 10, 4, 12, 20
LOSS_TOLERANCE = 1e-5
LOGITS_TOLERANCE = 1e-4
# Models of large random weights amplify rounding from step to step, and AdamW does so where a
# gradient is near 0: a small rate and a large eps keep it below the tolerance.
RATE, DECAY, BETAS, EPS, CLIP = 5e-4, 0.1, (0.9, 0.95), 1e-4, 0.5
# LongRoPE's short factors are only for 8 tokens; transformers chooses by the sample, we by the run.
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [255, 7, 99, 180, 12, 64, 201, 33, 8], [17] * 11]
NEW_TOKENS = 14
IDS = [5, 200, 31, 7, 7, 120, 256, 64, 3, 88, 141, 9, 250, 18, 42, 77, 6]


# ---- training ----

def write_tokens(prefix, tokens):
    """One sequence, which is one document, of 16-bit ids (docs/formats.md)."""
    prefix.with_suffix(".bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQiqqq", 1, 8, 1, 2, len(tokens), 0, 0, 1))


def train(folder, *more):
    """The run's losses before each step, and the one of all samples after the last."""
    kind = json.loads((folder / "hf/config.json").read_text())["model_type"]
    fixed = {"router_bias_rate": 0} if kind == "deepseek_v3" else {}
    write_json(folder / "run.yaml", {  # which is YAML, too
        "model": {"init_from": str(folder / "hf"), "embd_pdrop": 0, "resid_pdrop": 0,
                  "attn_pdrop": 0} | fixed,
        "data": {"train": str(folder / "tokens"), "valid": str(folder / "tokens"),
                 "sequence_length": LENGTH},
        "training": {"steps": STEPS, "global_batch_size": BATCH, "micro_batch_size": 2},
        "optimizer": {"name": "adamw", "learning_rate": RATE, "schedule": "constant",
                      "weight_decay": DECAY, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS,
                      "clip_norm": CLIP},
        "parallel": {"comm": "local", "threads": 1},
        "log": {"tensorboard": False}})
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        run(sys.argv[1], "train", folder / "run.yaml", f"log.directory={directory}/run", *more)
        text = pathlib.Path(directory, "run/metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    return [line[key] for key in ("loss", "valid_loss") for line in lines if key in line]


def find_order(folder, model):
    """The number of the sample at each position of a shuffled run: found, not computed.

    The learning rate is 0, and a step reads one sample, so each step's loss says which one it was.
    """
    count = STEPS * BATCH
    *ours, _ = train(folder, "optimizer.learning_rate=0", f"training.steps={count}",
                     "training.global_batch_size=1", "training.micro_batch_size=1")
    with torch.no_grad():
        known = [loss_of(model, [sample]).item() for sample in range(SAMPLES)]
    found = []
    for loss in ours:
        near = [i for i in range(SAMPLES) if abs(known[i] - loss) < 1e-4]
        assert len(near) == 1, f"the loss {loss} is of the samples {near}"
        found += near
    for first in range(0, count - SAMPLES + 1, SAMPLES):
        assert sorted(found[first:first + SAMPLES]) == list(range(SAMPLES)), found
    return found


def stream():
    """No id is 0, Gemma's padding, for whose row PyTorch computes no gradient.

    With this seed no two experts are so nearly alike for any token that rounding would choose."""
    draw = random.Random(12)
    return [draw.randrange(1, VOCABULARY) for _ in range(SAMPLES * LENGTH + 1)]


def loss_of(model, samples):
    """The mean over the tokens of these samples."""
    tokens = torch.tensor(stream())
    rows = torch.stack([tokens[i * LENGTH:(i + 1) * LENGTH + 1] for i in samples])
    logits = model(rows[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def train_theirs(model, order, betas=BETAS):
    """The losses before each step, and the one of all samples after the last."""
    groups = [{"params": [x for x in model.parameters() if x.dim() > 1], "weight_decay": DECAY},
              {"params": [x for x in model.parameters() if x.dim() <= 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=betas, eps=EPS)
    found = []
    for step in range(STEPS):
        loss = loss_of(model, order[step * BATCH:(step + 1) * BATCH])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        found.append(loss.item())
    with torch.no_grad():
        return found + [loss_of(model, range(SAMPLES)).item()]


def far_apart(a, b):
    assert len(a) == len(b) == STEPS + 1, (a, b)
    return max(abs(x - y) for x, y in zip(a, b))


def check_training(folder, model, order):
    ours, expected = train(folder), train_theirs(copy.deepcopy(model), order)
    far = far_apart(ours, expected)
    assert expected[0] - expected[-1] > 0.1, f"nothing was learned: {expected}"
    assert far < LOSS_TOLERANCE, f"losses are {far} apart:\n{ours}\n{expected}"
    return far


def check_told_apart(folder, model, order):
    """The same comparison with a wrong constant, and with a wrong order."""
    ours = train(folder)
    for expected in (train_theirs(copy.deepcopy(model), order, betas=(0.9, 0.96)),
                     train_theirs(copy.deepcopy(model), order[::-1])):
        assert far_apart(ours, expected) > 5 * LOSS_TOLERANCE, (ours, expected)


# ---- sampling ----

@torch.no_grad()
def check_sampling(folder, model):
    for prompt in PROMPTS:
        line = run(sys.argv[1], "sample", folder / "hf", "--ids", " ".join(map(str, prompt)),
                   "--temperature", "0", "--tokens", NEW_TOKENS)
        ids = torch.tensor([prompt])
        expected = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                  max_new_tokens=NEW_TOKENS)[0].tolist()
        if expected[-1] == model.config.eos_token_id:
            expected.pop()
        assert list(map(int, line.split())) == expected, (prompt, line, expected)


# ---- changed keys ----

# What has no effect on logits: of which cases, which values of config.json (of lists, all), and
# why. It has none in transformers, either: that is tested where the row is not of all cases.
UNUSED = [
    ("*", "architectures", "the name of a class; model_type says what the model is"),
    ("*", "transformers_version", "who wrote the file"),
    ("*", "dtype", "each tensor of the files says its own type"),
    ("*", "torch_dtype", "the same of older files"),
    ("*", "bos_token_id", "where texts begin, for sampling"),
    ("*", "eos_token_id", "where texts end, for sampling"),
    ("*", "pad_token_id", "what fills up batches, which we never do"),
    ("*", "max_position_embeddings", "the longest sample; rotary angles are of any position"),
    ("*", "initializer_range", "initial weights"),
    ("*", "use_cache", "how transformers samples"),
    ("*", "*dropout", "dropout, in training"),
    ("*", "*_pdrop", "dropout, in training"),
    ("gpt2*", "reorder_and_upcast_attn", "in which type transformers computes scores"),
    ("gpt2*", "summary_*", "the heads of classifiers"),
    ("gpt*", "*act* = gelu_pytorch_tanh", "another name of gelu_new"),
    ("*", "hidden_act* = gelu_new", "another name of gelu_pytorch_tanh"),
    ("*", "pretraining_tp", "transformers 5 does not read it in the model"),
    ("mi*", "router_jitter_noise", "noise, in training"),
    ("*", "router_aux_loss_coef", "a loss of training, which the run file sets"),
    ("*", "output_router_logits", "whether transformers adds that loss"),
    ("llama longrope", "rope_scaling.short_factor", "the run is longer than in pretraining"),
    ("phi3 v4", "rope_scaling.short_factor", "the run is longer than in pretraining"),
    ("phi3 window", "rope_parameters.long_factor", "the run is not longer than in pretraining"),
    ("phi3", "original_max_position_embeddings", "angles are not scaled"),
    ("[qs]*[!w]", "sliding_window", "use_sliding_window is false"),
    ("[qs]*[!w]", "use_sliding_window = True", "the window is longer than the sample, or null"),
    ("qwen[23]*", "max_window_layers", "layer_types says which layers have windows"),
    ("mistral*", "sliding_window = (removed)", "4096 by default, longer than the sample"),
    ("qwen?_mo*[!4]", "intermediate_size", "no layer is dense"),
    ("qwen?_moe v4", "decoder_sparse_step", "mlp_only_layers lists the other layers, too"),
    ("qwen?_moe v4", "mlp_only_layers", "decoder_sparse_step leaves these out, too"),
    ("starcoder2*", "rms_norm_eps", "no key of this family, which has norm_epsilon"),
    ("gpt_neox*", "rms_norm_eps", "no key of this family, which has layer_norm_eps"),
    ("gpt_neox*", "rope_theta", "rope_parameters has it"),
    ("gpt_neox*", "is_decoder", "attention is causal in any case"),
    ("gemma3_text*", "_sliding_window_pattern", "layer_types says which layers have windows"),
    ("qwen3 v4", "num_key_value_heads = None", "as many as query heads, which it is"),
    ("deepseek_v3*", "num_key_value_heads = None", "as many as query heads, which it is"),
    ("deepseek_v3*", "num_nextn_predict_layers", "multi-token prediction is left out"),
    ("helium mapped", "head_dim = [(N]*", "a default of the mapping file"),
    ("smollm3*", "no_rope_layer_interval", "no_rope_layers says which layers are rotary"),
    ("smollm3*", "no_rope_layers = *, *, *, *", "entries of layers that are not there"),
]
# What transformers computes otherwise.
OTHERWISE = [
    ("* mapped*", "* = (removed)", "defaults are the mapping file's, or its base's"),
    ("*", "*.truncate = None", "null is false there; we read any null as a missing key"),
    ("deepseek_v3*", "norm_topk_prob = None", "the same"),
    ("deepseek_v3*", "rope_interleave = None", "the same"),
]
REMOVED = "(removed)"
WORDS = [
    ["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu"],
    ["full_attention", "sliding_attention", "chunked_attention"],
    ["default", "linear", "dynamic", "llama3", "yarn", "longrope"],
]


def other_values(value):
    """Values near one of config.json: of the same type, unless that is null."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [x for x in dict.fromkeys([value + 1, 2 * value, value // 2, 0]) if x != value]
    if isinstance(value, float):
        return [1.5 * value, 0.5 * value] if value else [0.1, 1.0]
    if isinstance(value, str):
        kind = next((words for words in WORDS if value in words), [])
        return [word for word in kind if word != value] + [value + "_x"]
    return [3, 0.5, True, "x"] if value is None else []


def changes(value, path=()):
    """Pairs of a path into the JSON value and what stands there instead; one value at a time."""
    for other in other_values(value):
        yield path, other
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key), REMOVED
            if inner is not None:
                yield (*path, key), None
            yield from changes(inner, (*path, key))
    if isinstance(value, list):
        yield path, value + (value[-1:] or [0])
        if value:
            yield path, value[:-1]
        for i, inner in enumerate(value):
            yield from changes(inner, (*path, i))


def changed(config, path, value):
    config = copy.deepcopy(config)
    at = config
    for key in path[:-1]:
        at = at[key]
    if value is REMOVED:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return config


def describe(path, value):
    return f"{'.'.join(map(str, path))} = {value}"


def find_row(rows, case, words):
    """The number of the row of such a case and value; None if there is none."""
    for i, (cases, values, _) in enumerate(rows):
        if fnmatch.fnmatchcase(case, cases) and any(
                fnmatch.fnmatchcase(words, values + end) for end in ("", " = *", ".* = *")):
            return i
    return None


def read_answers(folders):
    """The logits with each folder, None where it is refused."""
    answers = []
    said = run(sys.argv[2], *folders, "--", *IDS, merged=True)
    for part in re.split("^folder ", said, flags=re.MULTILINE)[1:]:
        lines = [line for line in part.splitlines()[1:] if not line.startswith("echelon")]
        answers.append(None if lines == ["refused"] else torch.tensor(
            [[float(x) for x in line.split()] for line in lines], dtype=torch.float64))
    assert len(answers) == len(folders)
    return answers


def is_default(config, path, value):
    """Whether transformers reads the same where the value is missing. We read null as missing."""
    if value is not None and value is not REMOVED:
        return False
    with_and_without = (config, changed(config, path, REMOVED))
    kinds = (transformers.AutoConfig.for_model(**copy.deepcopy(x)) for x in with_and_without)
    try:
        return next(kinds).to_dict() == next(kinds).to_dict()
    except Exception:  # of any kind: values are wrong in many ways
        return False


def expected_logits(config, state):
    """transformers' logits of these keys and weights; None where it refuses them."""
    try:
        kind = transformers.AutoConfig.for_model(**copy.deepcopy(config))
        model = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager")
        model.config._experts_implementation = "eager"
        model.double().eval().load_state_dict(state)
        return theirs(model, IDS)
    except Exception:  # as above
        return None


def write_changed(folder, config, i):
    """The folder with another config.json."""
    here = folder / f"changed-{i}"
    here.mkdir()
    for file in (folder / "hf").iterdir():
        if file.name != "config.json":
            os.link(file, here / file.name)
    write_json(here / "config.json", config)
    return here


def check_changes(case, folder, model, used):
    """Adds the rows of UNUSED that were needed to `used`. Returns how many changes were judged, how
    many were refused, and how many logits compared with transformers'."""
    config = json.loads((folder / "hf/config.json").read_text())
    pairs = list(changes(config))
    configs = [config, *(changed(config, *pair) for pair in pairs)]
    logits = read_answers([write_changed(folder, x, i) for i, x in enumerate(configs)])
    assert logits[0] is not None, "the folder as it is was refused"
    state, compared, wrong = model.state_dict(), 0, []
    for pair, other, ours in zip(pairs, configs[1:], logits[1:]):
        words = describe(*pair)
        if ours is None:
            continue
        row = find_row(UNUSED, case, words)
        if torch.equal(ours, logits[0]):
            if row is not None:
                used.add(row)
            elif not is_default(config, *pair):
                wrong.append(f"{words}: no effect")
            if row is None or UNUSED[row][0] == "*":
                continue
        expected = expected_logits(other, state)
        if expected is None or find_row(OTHERWISE, case, words) is not None:
            continue
        compared += 1
        if apart(ours, expected) > LOGITS_TOLERANCE:
            wrong.append(f"{words}: logits are {apart(ours, expected):.1e} from transformers'")
    assert not wrong, "\n    ".join(["changed keys:", *wrong])
    return len(pairs), sum(x is None for x in logits), compared


# ---- from begin to end ----

def check_case(name, order, used):
    """Returns the order, which the first case finds."""
    options, how = CASES[name]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_tokens(folder / "tokens", stream())
        model = save(folder / "hf", options, how)
        if not order:
            order = find_order(folder, model)
            check_told_apart(folder, model, order)
        far = check_training(folder, model, order)
        check_sampling(folder, model)
        judged, refused, compared = check_changes(name, folder, model, used)
    print(f"{name}: losses within {far:.1e}, the same ids; of {judged} changed keys {refused} are "
          f"refused, {compared} as in transformers", flush=True)
    return order


def main():
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # beside other tests
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    order, used, failed = None, set(), []
    for name in sys.argv[3:] or CASES:
        try:
            order = check_case(name, order, used)
        except AssertionError as error:
            failed.append(name)
            print(f"{name}: FAILED: {error}", flush=True)
    stale = [UNUSED[i] for i in range(len(UNUSED)) if i not in used and not sys.argv[3:]]
    if failed or stale:
        sys.exit(f"{len(failed)} failed: {', '.join(failed)}; rows of UNUSED without use: {stale}")


if __name__ == "__main__":
    main()
