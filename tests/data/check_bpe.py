#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE against Hugging Face's library `tokenizers`: the same ids for thousands of texts.

check_bpe.py USE_TOKENIZER; exit code 77 where the library is missing. Vocabularies are trained here, by
the library, with each pattern. GPT-2's own is compared too where ECHELON_GPT2, or ../shared/data/gpt2 beside
the project, has encoder.json and vocab.bpe.
"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

try:
    import tokenizers
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    print("skipped: no Python library `tokenizers` for", sys.executable)
    sys.exit(77)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_start|>x", "<|im"]
WORDS = ("the quick brown fox, don't DON'T we'Re I'LL 'sea it'ſ 1234567890 12 naïve Ærø Straße привет мир "
         "東京都は日本の首都 안녕하세요 שלום مرحبا नमस्ते สวัสดี 🙂 👩‍👩‍👧‍👦 🇩🇪 e\u0301 o\u0308\u0323 \ud55c \u1112\u1161\u11ab "
         "x=y+z; /* --- */ #!? ... ½ ² Ⅷ ٣٤ \u212b \u2126").split(" ")
BLANKS = [" ", "  ", "   ", "\n", "\r\n", "\n\n", " \n", "\t", "\u00a0", "\u180e", "\u2028", "\u3000", "\u0085",
          "\u200b", "\u202f", "\v", "\f", "\u1680", "\u2003 ", "", "", " "]


def corpus(random_, n):
    return ["".join(random_.choice(WORDS) + random_.choice(BLANKS) for _ in range(random_.randint(1, 60)))
            for _ in range(n)]


def any_character(random_):
    """A character that was assigned long ago: engines differ in what is new."""
    while True:
        c = chr(random_.choice([random_.randint(0, 0x2ff), random_.randint(0, 0x33ff),
                                random_.randint(0x4e00, 0x9fa5), random_.randint(0xac00, 0xd7a3),
                                random_.randint(0x10000, 0x1ffff), random_.randint(0x20, 0x7e)]))
        if unicodedata.category(c) not in ("Cs", "Cn") and unicodedata.ucd_3_2_0.category(c) != "Cn":
            return c


def texts(random_, n):
    out = ["", " ", "a", "'", "\n", "".join(map(chr, range(0x300))), "a" * 5000, "ab" * 3000 + "\n" * 700,
           " " * 3000, " " * 3000 + "x", "\u00e9" * 900, "1" * 1000, "!" * 999 + "\r\n\r\n", "日" * 2000]
    out += SPECIAL + ["a<|im_start|>xb <|im_start|> <|im <|endoftext|><|endoftext|>", "<|im_star" * 50]
    out += corpus(random_, n)
    for _ in range(n):
        parts = random_.choices(WORDS + BLANKS + SPECIAL, k=random_.randint(0, 20))
        parts += [any_character(random_) for _ in range(random_.randint(0, 30))]
        random_.shuffle(parts)
        out.append("".join(parts))
    return out


def pattern_of(name):
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name == "gpt2")
    if name in ("gpt2", "whole"):
        return level
    split = pre_tokenizers.Split(Regex(LLAMA3 if name == "llama3" else QWEN2), "isolated")
    return pre_tokenizers.Sequence([split, level])


def train(name, lines):
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    made.pre_tokenizer = pattern_of(name)
    made.decoder = decoders.ByteLevel()
    if name == "qwen2":
        made.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL[:2], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(lines, trainer)
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL[2:]])
    made.add_tokens([AddedToken("quick brown", normalized=name != "qwen2")])
    return made


def run(use, source, how, inputs):
    sent = b"".join(struct.pack("<I", len(t)) + t for t in inputs)
    got = subprocess.run([use, source, *how], input=sent, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in inputs:
        n, = struct.unpack_from("<I", got, at)
        ids = list(struct.unpack_from(f"<{n}i", got, at + 4))
        m, = struct.unpack_from("<I", got, at + 4 + 4 * n)
        at += 8 + 4 * n
        yield ids, got[at:at + m]
        at += m
    assert at == len(got)


def check_texts(use, source, theirs, inputs, end, nfc=False):
    sent = [t.encode() for t in inputs]
    expected = [e.ids for e in theirs.encode_batch(inputs, add_special_tokens=False)]
    for how in (["encode"], ["pieces", "64"], ["pieces", "500"]):
        for text, ids, (got, back) in zip(inputs, expected, run(use, source, how, sent)):
            assert got == ids, (source, how, text, ids, got)
            whole = unicodedata.normalize("NFC", text) if nfc and text.isascii() else text
            if not nfc:
                assert back == whole.replace(end, "").encode(), (text, back)


def check_junk(use, source, random_, end):
    junk = [bytes(random_.choices(range(256), k=random_.randint(0, 200))) for _ in range(500)]
    junk += ["ab 東京 🙂".encode()[:k] + b" \xff\xc3" for k in range(12)] + [bytes(range(256)) * 4]
    for how in (["encode"], ["pieces", "16"]):
        for text, (_, back) in zip(junk, run(use, source, how, junk)):
            assert back == text.replace(end.encode(), b""), (text, back)


def check_export(use, source, theirs, inputs, folder):
    """What we write loads there with the same ids, and here with the same text."""
    folder.mkdir()
    subprocess.run([use, source, "export", folder], check=True)
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
        assert auto(text, add_special_tokens=False)["input_ids"] == theirs.encode(text, add_special_tokens=False).ids
    assert auto.eos_token == json.loads((folder / "tokenizer_config.json").read_text())["eos_token"]


def check_training(use, folder, name, lines, vocabulary):
    """A vocabulary learnt here is the one that the library learns: tokens, ids, merges in order."""
    (folder / "texts").mkdir(exist_ok=True)
    for i, line in enumerate(lines):
        (folder / "texts" / f"{i:05}").write_bytes(line.encode())
    subprocess.run([use, folder / "texts", "learn", folder / f"learnt-{name}", str(vocabulary), name], check=True)
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pattern_of(name)
    made.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    theirs = json.loads(made.to_str())["model"]
    ours = json.loads((folder / f"learnt-{name}" / "tokenizer.json").read_text())["model"]
    assert ours["vocab"] == theirs["vocab"], set(ours["vocab"].items()) ^ set(theirs["vocab"].items())
    assert ours["merges"] == [m.split(" ") if isinstance(m, str) else m for m in theirs["merges"]]
    again = tokenizers.Tokenizer.from_file(str(folder / f"learnt-{name}" / "tokenizer.json"))
    check_texts(use, str(folder / f"learnt-{name}"), again, lines[:100], "<|endoftext|>")
    print(name, "learns the same", vocabulary, "tokens")


def with_string_merges(path, to):
    """The way that older files have it."""
    root = json.loads(path.read_text())
    root["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in root["model"]["merges"]]
    to.write_text(json.dumps(root, ensure_ascii=False))


def gpt2(folder):
    made = tokenizers.Tokenizer(models.BPE.from_file(f"{folder}/encoder.json", f"{folder}/vocab.bpe"))
    made.pre_tokenizer = pattern_of("gpt2")
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    return made


def main():
    use, random_ = sys.argv[1], random.Random(1)
    lines, inputs, end = corpus(random_, 400), texts(random_, 1500), "<|endoftext|>"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for pattern in ("gpt2", "llama3", "qwen2", "whole"):
            theirs = train(pattern, [line[:40] for line in lines] if pattern == "whole" else lines)
            path = folder / f"{pattern}.json"
            theirs.save(str(path))
            check_texts(use, str(path), theirs, inputs, end, pattern == "qwen2")
            if pattern != "qwen2":
                check_junk(use, str(path), random_, end)
            check_export(use, str(path), theirs, inputs, folder / pattern)
            with_string_merges(path, folder / "strings.json")
            check_texts(use, str(folder / "strings.json"), theirs, inputs[:300], end, pattern == "qwen2")
            print(pattern, len(inputs), "texts agree")
            if pattern != "whole":
                check_training(use, folder, pattern, lines, 800)
        own = os.environ.get("ECHELON_GPT2") or str(pathlib.Path(__file__).parents[3] / "shared" / "data" / "gpt2")
        if not pathlib.Path(own).is_dir():
            print("skipped: GPT-2's own files, there is no", own)
        else:
            check_texts(use, own, gpt2(own), inputs, end)
            check_junk(use, own, random_, end)
            check_export(use, own, gpt2(own), inputs, folder / "own")
            print("GPT-2's own files agree")
    print("tokenizers", tokenizers.__version__, "agrees")


main()
