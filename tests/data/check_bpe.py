#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE against Hugging Face's library `tokenizers`: the same ids for thousands of texts.

check_bpe.py USE_TOKENIZER; exit code 77 where the library is missing. Vocabularies are trained
here, by the library, with each pattern. GPT-2's own is compared too where ECHELON_GPT2, or
../shared/data/gpt2 beside the project, has encoder.json and vocab.bpe. """
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import tokenizers
    from tokenizers import (
        AddedToken,
        Regex,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )
except ImportError:
    print("skipped: no Python library `tokenizers` for", sys.executable)
    sys.exit(77)

from texts_of_tokenizers import SPECIAL, corpus, run, texts

APOSTROPHES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WHITE = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = APOSTROPHES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + WHITE
SMALL = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
CAPITAL = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r'''[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^'''
    + "\r\n"
    + r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[" + "\r\n" + r"]*|\s*[" + "\r\n" + r"]+|\s+(?!\S)|\s+",
]
SPLITS = {
    "llama3": [LLAMA3],
    "cl100k": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ],
    "qwen2": [LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")],
    "qwen35": [
        APOSTROPHES
        + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
        + WHITE
    ],
    "o200k": [
        SMALL
        + APOSTROPHES
        + "?|"
        + CAPITAL
        + APOSTROPHES
        + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
        + WHITE
    ],
    "tekken": [SMALL + "|" + CAPITAL + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + WHITE],
    "deepseek": DEEPSEEK,
}
OWN = ("gpt2", "prefixed", "smollm", "digits")  # whose ByteLevel has its own expression
NORMALIZERS = {"qwen2": ("NFC", normalizers.NFC), "o200k": ("NFKC", normalizers.NFKC)}


def pattern_of(name):
    steps = [pre_tokenizers.Split(Regex(e), "isolated") for e in SPLITS.get(name, [])]
    if name in ("smollm", "digits"):
        steps = [pre_tokenizers.Digits(individual_digits=name == "smollm")]
    if name == "llama3":
        steps = [pre_tokenizers.Split(Regex(LLAMA3), "removed", invert=True)]
    level = pre_tokenizers.ByteLevel(add_prefix_space=name == "prefixed", use_regex=name in OWN)
    return pre_tokenizers.Sequence(steps + [level]) if steps else level


def train(name, lines):
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    made.pre_tokenizer = pattern_of(name)
    made.decoder = decoders.ByteLevel()
    if name in NORMALIZERS:
        made.normalizer = NORMALIZERS[name][1]()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL[:2], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(lines, trainer)
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL[2:]])
    made.add_tokens([AddedToken("quick brown", normalized=name not in NORMALIZERS)])
    return made


def check_texts(use, source, theirs, inputs, end, exact=True):
    """exact: what comes back is the text, not a normalized or prefixed one."""
    sent = [t.encode() for t in inputs]
    expected = [e.ids for e in theirs.encode_batch(inputs, add_special_tokens=False)]
    for how in (["encode"], ["pieces", "64"], ["pieces", "500"]):
        for text, ids, (got, back) in zip(inputs, expected, run(use, source, how, sent)):
            assert got == ids, (source, how, text, ids, got)
            whole = text if exact else theirs.decode(ids, skip_special_tokens=False)
            assert back == whole.replace(end, "").encode(), (text, back)


def check_junk(use, source, random_, end):
    junk = [bytes(random_.choices(range(256), k=random_.randint(0, 200))) for _ in range(500)]
    junk += ["ab 東京 🙂".encode()[:k] + b" \xff\xc3" for k in range(12)] + [bytes(range(256)) * 4]
    for how in (["encode"], ["pieces", "16"]):
        for text, (_, back) in zip(junk, run(use, source, how, junk)):
            assert back == text.replace(end.encode(), b""), (text, back)


def check_export(use, source, theirs, inputs, folder):
    """What we write loads there with the same ids; a tokenizer.json stays as it is, byte for
    byte."""
    folder.mkdir()
    subprocess.run([use, source, "export", folder], check=True)
    if pathlib.Path(source).is_file():
        assert (folder / "tokenizer.json").read_bytes() == pathlib.Path(source).read_bytes()
    again = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for a, b in zip(theirs.encode_batch(inputs), again.encode_batch(inputs)):
        assert a.ids == b.ids
    second = folder / "again"
    second.mkdir()
    subprocess.run([use, str(folder), "export", second], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (folder / name).read_text() == (second / name).read_text()
    try:
        import transformers
    except ImportError:
        print("without transformers, which is not there")
        return
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    for text in inputs[:200]:
        assert (
            auto(text, add_special_tokens=False)["input_ids"]
            == theirs.encode(text, add_special_tokens=False).ids
        )
    assert auto.eos_token == json.loads((folder / "tokenizer_config.json").read_text())["eos_token"]


def check_training(use, folder, name, lines, vocabulary):
    """A vocabulary learnt here is the one that the library learns: tokens, ids, merges in order."""
    (folder / "texts").mkdir(exist_ok=True)
    for i, line in enumerate(lines):
        (folder / "texts" / f"{i:05}").write_bytes(line.encode())
    subprocess.run(
        [use, folder / "texts", "learn", folder / f"learnt-{name}", str(vocabulary), name],
        check=True,
    )
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pattern_of(name)
    made.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    theirs = json.loads(made.to_str())["model"]
    ours = json.loads((folder / f"learnt-{name}" / "tokenizer.json").read_text())["model"]
    assert ours["vocab"] == theirs["vocab"], set(ours["vocab"].items()) ^ set(
        theirs["vocab"].items()
    )
    assert ours["merges"] == [m.split(" ") if isinstance(m, str) else m for m in theirs["merges"]]
    again = tokenizers.Tokenizer.from_file(str(folder / f"learnt-{name}" / "tokenizer.json"))
    check_texts(use, str(folder / f"learnt-{name}"), again, lines[:100], "<|endoftext|>")
    print(name, "learns the same", vocabulary, "tokens")


def with_string_merges(path, to):
    """The way that older files have it."""
    root = json.loads(path.read_text())
    root["model"]["merges"] = [
        m if isinstance(m, str) else " ".join(m) for m in root["model"]["merges"]
    ]
    to.write_text(json.dumps(root, ensure_ascii=False))


def gpt2(folder):
    made = tokenizers.Tokenizer(
        models.BPE.from_file(f"{folder}/encoder.json", f"{folder}/vocab.bpe")
    )
    made.pre_tokenizer = pattern_of("gpt2")
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    return made


def main():
    use, random_ = sys.argv[1], random.Random(1)
    lines, inputs, end = corpus(random_, 400), texts(random_, 1500), "<|endoftext|>"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for pattern in ("gpt2", "prefixed", *SPLITS, "smollm", "digits", "whole"):
            theirs = train(pattern, [line[:40] for line in lines] if pattern == "whole" else lines)
            path = folder / f"{pattern}.json"
            exact = pattern not in NORMALIZERS and pattern != "prefixed"
            theirs.save(str(path))
            check_texts(use, str(path), theirs, inputs, end, exact)
            if exact:
                check_junk(use, str(path), random_, end)
            if pattern in ("gpt2", "qwen2", "deepseek"):
                check_export(use, str(path), theirs, inputs[:500], folder / pattern)
                with_string_merges(path, folder / "strings.json")
                check_texts(use, str(folder / "strings.json"), theirs, inputs[:300], end, exact)
            print(pattern, *NORMALIZERS.get(pattern, ())[:1], len(inputs), "texts agree")
            if pattern in ("gpt2", "llama3", "qwen2", "deepseek", "smollm"):
                check_training(use, folder, pattern, lines, 800)
        own = os.environ.get("ECHELON_GPT2") or str(
            pathlib.Path(__file__).parents[3] / "shared" / "data" / "gpt2"
        )
        if not pathlib.Path(own).is_dir():
            print("skipped: GPT-2's own files, there is no", own)
        else:
            check_texts(use, own, gpt2(own), inputs, end)
            check_junk(use, own, random_, end)
            check_export(use, own, gpt2(own), inputs, folder / "own")
            print("GPT-2's own files agree")
    print("tokenizers", tokenizers.__version__, "agrees")


main()
