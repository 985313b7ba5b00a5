#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""BPE over characters with byte fallback against Hugging Face's library `tokenizers` and
`sentencepiece`: the same ids, and the same text back, for thousands of texts.

check_pieces.py USE_TOKENIZER; exit code 77 where a library is missing. A vocabulary is trained here
with sentencepiece's options for Llama 2, and put into the tokenizer.json of each family as its
converters do. """
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import sentencepiece
    import tokenizers
    from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
except ImportError as error:
    print("skipped:", error, "for", sys.executable)
    sys.exit(77)

from texts_of_tokenizers import corpus, run, texts

BLANK = "\u2581"
LLAMA2 = {
    "vocab_size": 900,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "split_digits": True,
    "allow_whitespace_only_pieces": True,
    "byte_fallback": True,
    "character_coverage": 0.998,
}


def learn(lines, **options):
    """A tokenizer.model."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", minloglevel=2,
        **{**LLAMA2, **options})
    return out.getvalue()


def vocabulary_of(model):
    """Tokens and merges as converters make them: every way to make a piece of two, best pieces
    first."""
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokens = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    merges = []
    for token, i in tokens.items():
        if pieces.is_byte(i) or pieces.is_control(i) or pieces.is_unknown(i):
            continue
        halves = [(token[:k], token[k:]) for k in range(1, len(token))]
        made = [(tokens[a], tokens[b], a, b) for a, b in halves if a in tokens and b in tokens]
        merges += [(-pieces.get_score(i), *m) for m in made]
    return tokens, [(a, b) for *_, a, b in sorted(merges)]


def family(name, tokens, merges):
    made = tokenizers.Tokenizer(
        models.BPE(
            tokens,
            merges,
            byte_fallback=True,
            unk_token="<unk>",
            fuse_unk=True,
            ignore_merges=name == "ignoring",
        )
    )
    strip = [decoders.Strip(" ", 1, 0)]
    replace = normalizers.Replace(" ", BLANK)
    if name in ("llama2", "llama1", "ignoring"):
        made.normalizer = normalizers.Sequence([normalizers.Prepend(BLANK), replace])
    elif name == "gemma":
        made.normalizer = replace
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        strip = []
    elif name == "composed":
        made.normalizer = normalizers.Sequence([normalizers.NFKC(), replace])
        strip = []
    else:
        scheme, split = name.split("-")
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split == "split")
    made.decoder = decoders.Sequence(
        [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    made.add_special_tokens(
        [AddedToken(t, normalized=name == "llama1") for t in ("<unk>", "<s>", "</s>")]
    )
    made.add_special_tokens(
        [AddedToken(t, normalized=False) for t in ("<|im_start|>", "<|im_start|>x", "<|im")]
    )
    template = processors.TemplateProcessing(
        single="<s> $A" if name == "first-whole" else "<s> $A </s>",
        special_tokens=[("<s>", 1), ("</s>", 2)],
    )
    level = processors.ByteLevel(trim_offsets=False)
    made.post_processor = processors.Sequence([level, template]) if name == "gemma" else template
    if name != "composed":
        made.add_tokens([AddedToken("quick brown", normalized=True)])
    return made


FAMILIES = (
    "llama2",
    "llama1",
    "gemma",
    "composed",
    "first-whole",
    "always-whole",
    "always-split",
    "never-split",
    "ignoring",
)


def all_texts(random_, n):
    out = texts(random_, n)
    out += [
        "<s>",
        "</s>",
        "<s>a",
        "a</s>b</s> c",
        " <s> a",
        "<unk>",
        "a <s><s> b",
        "<0x41>",
        "a<0x0A>b",
        BLANK,
        f"a{BLANK}b {BLANK} c",
        f"{BLANK}{BLANK}",
        "\0",
        "a\0b",
        "\u200b\u2060",
        "\U0010ffff\ue000",
        "\ufffd\ufffe",
        "the " * 3000,
        "ab" * 4000,
        "x" * 6000,
        " a" * 3000,
        BLANK * 999,
    ]
    for _ in range(n):  # few letters, so many merges compete
        out.append("".join(random_.choice("aeht no  .1") for _ in range(random_.randint(1, 120))))
    return out


def check_family(use, folder, name, tokens, merges, inputs):
    theirs = family(name, tokens, merges)
    path = folder / f"{name}.json"
    theirs.save(str(path))
    expected = [e.ids for e in theirs.encode_batch(inputs, add_special_tokens=False)]
    for how in (["encode"], ["pieces", "64"], ["pieces", "500"]):
        for text, ids, (got, back) in zip(
            inputs, expected, run(use, str(path), how, [t.encode() for t in inputs])
        ):
            assert got == ids, (name, how, text, ids, got)
            if name != "llama1":  # its end of text is decoded with a blank in front
                assert (
                    back
                    == theirs.decode(ids, skip_special_tokens=False).replace("</s>", "").encode()
                ), (text, back)
    check_around(use, path, theirs, inputs[:200])
    (folder / name).mkdir()
    subprocess.run([use, str(path), "export", folder / name], check=True)
    assert (folder / name / "tokenizer.json").read_bytes() == path.read_bytes()
    print(name, len(inputs), "texts agree")


MODELS = {
    "llama2": {},
    "gemma": {"add_dummy_prefix": False},
    "digits": {"split_digits": False, "vocab_size": 700},
    "symbols": {
        "user_defined_symbols": ["<|im_start|>", "<|im", "quick", f"{BLANK}{BLANK}", "\u20ac"],
        "control_symbols": ["<pad>", "<|im_end|>"],
    },
}


def check_model(use, folder, name, lines, inputs):
    """tokenizer.model itself."""
    path = folder / f"{name}.model"
    path.write_bytes(learn(lines, **MODELS[name]))
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    for how in (["encode"], ["pieces", "64"], ["pieces", "500"]):
        for text, (got, back) in zip(
            inputs, run(use, str(path), how, [t.encode() for t in inputs])
        ):
            ids = theirs.encode(text)
            assert got == ids, (name, how, text, ids, got)
            assert back == theirs.decode(ids).encode(), (name, text, back)
    for text, (got, _) in zip(
        inputs[:50], run(use, str(path), ["around"], [t.encode() for t in inputs])
    ):
        assert got == theirs.encode(text, add_bos=True), (name, text, got)
    (folder / f"{name}_model").mkdir()
    subprocess.run([use, str(path), "export", folder / f"{name}_model"], check=True)
    assert (folder / f"{name}_model" / "tokenizer.model").read_bytes() == path.read_bytes()
    check_junk(use, str(folder / f"{name}_model"), random.Random(2), False)
    print(name, "as tokenizer.model:", len(inputs), "texts agree")


def check_around(use, path, theirs, inputs):
    for text, (got, _) in zip(
        inputs, run(use, str(path), ["around"], [t.encode() for t in inputs])
    ):
        assert got == theirs.encode(text).ids, (path, text, got)


def check_junk(use, path, random_, blank):
    """What is no UTF-8 comes back byte for byte."""
    junk = [bytes(random_.choices(range(256), k=random_.randint(0, 200))) for _ in range(500)]
    junk += ["ab 東京 🙂".encode()[:k] + b" \xff\xc3" for k in range(12)] + [bytes(range(256)) * 4]
    for how in (["encode"], ["pieces", "16"]):
        for text, (_, back) in zip(junk, run(use, path, how, junk)):
            assert back == text or blank and b" " + back == text, (text, back)


def main():
    use, random_ = sys.argv[1], random.Random(1)
    lines = [line.replace("\n", " ") for line in corpus(random_, 400)]
    inputs = all_texts(random_, 1000)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for made in MODELS:
            check_model(use, folder, made, lines, inputs)
        tokens, merges = vocabulary_of(learn(lines))
        for made in FAMILIES:
            check_family(use, folder, made, tokens, merges, inputs)
        check_junk(use, str(folder / "llama2.json"), random_, False)
        check_junk(use, str(folder / "first-whole.json"), random_, True)
    print(
        "tokenizers",
        tokenizers.__version__,
        "and sentencepiece",
        sentencepiece.__version__,
        "agree",
    )


if __name__ == "__main__":
    main()
