#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`echelon eval --choices` beside transformers: the log-likelihood of every choice, on small random
models, under several layouts, within 1e-5 of its size; and the accuracies that follow. Skips (77)
where a package is missing.

    check_choices.py ECHELON
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

ECHELON = sys.argv[1]
TOLERANCE = 1e-5
ITEMS = [
    {"question": "What do ranks send?", "choices": {"text": ["gradients", "letters and parcels"],
                                                    "label": ["A", "B"]}, "answerKey": "A"},
    {"ctx": "A rank waits ", "endings": ["for the others.", "sings", "ñandú — ÿ"], "label": "2"},
    {"goal": "Save the weights", "sol1": "write a checkpoint", "sol2": "hope", "label": 1},
    {"question": "How many ranks?", "choices": ["one", "two", "three", "4096"], "answer": 3},
    {"context": "", "choices": ["a text", "another text of more tokens"], "gold": 1}]
LLAMA = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 56, "max_position_embeddings": 128}
GPT2 = {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 96}
LAYOUTS = ["", "tensor=2", "pipeline=2", "context=2", "tensor=2 pipeline=2 context=2"]


def make(folder, kind, options):
    """A random model with a tokenizer of its own."""
    plain = tokenizers.Tokenizer(tokenizers.models.BPE())
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    plain.train_from_iterator(
        [json.dumps(one) for one in ITEMS] * 3, tokenizers.trainers.BpeTrainer(
            vocab_size=340, special_tokens=["<|endoftext|>"],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    torch.manual_seed(3)
    config = getattr(transformers, kind + "Config")(
        vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def parts(item):
    """Prompt, choices and the answer's index of an item, as the harness's tasks make them."""
    asked = item.get("question", item.get("goal"))
    prompt = item.get("ctx", item.get("context", "")) if asked is None else \
        f"Question: {asked}\nAnswer:"
    choices = item.get("choices", item.get("endings")) or [item["sol1"], item["sol2"]]
    if isinstance(choices, dict):
        return prompt, choices["text"], choices["label"].index(item["answerKey"])
    return prompt, choices, int(next(item[key] for key in ("answer", "label", "gold")
                                     if key in item))


def likelihood(model, tokenizer, prompt, choice):
    """As lm-evaluation-harness encodes a pair."""
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    divider = "" if not prompt or prompt[-1].isspace() else " "
    whole = encode(prompt + divider + choice)
    before = len(encode(prompt.rstrip()))
    ids = whole if before else [0] + whole
    with torch.no_grad():
        logs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(float(logs[t - 1, ids[t]]) for t in range(max(before, 1), len(ids)))


def check(kind, options):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model, tokenizer = make(folder / "model", kind, options)
        (folder / "items").write_text("".join(json.dumps(one) + "\n" for one in ITEMS))
        wanted = [[likelihood(model, tokenizer, parts(one)[0], choice) for choice in parts(one)[1]]
                  for one in ITEMS]
        right = {"acc": 0, "acc_norm": 0, "acc_bytes": 0}
        for item, values in zip(ITEMS, wanted):
            _, choices, answer = parts(item)
            for name_of, length in (("acc", lambda text: 1), ("acc_norm", len),
                                    ("acc_bytes", lambda text: len(text.encode()))):
                scores = [value / length(text) for value, text in zip(values, choices)]
                right[name_of] += scores.index(max(scores)) == answer
        for number, layout in enumerate(LAYOUTS):
            scores = folder / f"scores{number}"
            words = ["--parallel", layout] if layout else []
            said = subprocess.run(
                [ECHELON, "eval", folder / "model", "--choices", folder / "items", "--scores",
                 scores, "--begin-of-text", "false", *words],
                check=True, capture_output=True, text=True).stdout
            for name_of, count in right.items():
                printed = float(re.search(rf"\b{name_of} ([0-9.]+)", said)[1])
                assert abs(printed - count / len(ITEMS)) < 1e-6, (said, right)
            worst = 0
            for line, values in zip(scores.read_text().splitlines(), wanted, strict=True):
                for ours, theirs in zip(json.loads(line)["log_likelihoods"], values, strict=True):
                    worst = max(worst, abs(ours - theirs) / max(abs(theirs), 1))
            print(f"{kind} {layout or 'one rank'}: {worst:.1e}")
            assert worst < TOLERANCE, (kind, layout, worst)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    check("Llama", LLAMA)
    check("GPT2", GPT2)
