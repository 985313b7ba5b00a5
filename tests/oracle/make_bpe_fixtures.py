#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/bpe: small vocabularies trained by Hugging Face's library `tokenizers` and
by sentencepiece, and the ids they give to texts. make_bpe_fixtures.py FOLDER

NAME.json is a tokenizer.json, NAME.model a tokenizer.model. NAME.cases has, for each text: its
length in bytes (u32), its UTF-8, the count of ids (u32), the ids (i32), and the length (u32) and
bytes of the text that comes back. """
import io
import json
import pathlib
import random
import struct
import sys

import sentencepiece
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SMALL = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + ENDING
CAPITAL = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + ENDING
# With carriage returns and newlines as they are.
DEEPSEEK = (
    r'''[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^CN\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+'''
    r"| ?[\p{P}\p{S}]+[CN]*|\s*[CN]+|\s+(?!\S)|\s+"
).replace("CN", "\r\n")
PATTERNS = {
    "gpt2": [],
    "llama3": [LLAMA3],
    "qwen2": [LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")],
    "o200k": [
        SMALL + "|" + CAPITAL + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "deepseek": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK],
    "smollm": [],
    "llama2": [],
    "mistral": [],
}
FEW = ("o200k", "deepseek", "smollm", "llama2", "mistral")  # have fewer texts
BLANK = "\u2581"
PROSE = """It is not because things are difficult that we do not dare; it's because we don't dare \
that they're
difficult. We'll see what we've seen, I'd say: 1, 22, 333, 4444, 55555. \
Der Äpfel Größe übt größere Übung.
Привет, мир! Как дела, мир? Καλημέρα κόσμε. 東京都は日本の首都です。日本の東京。안녕하세요 세계. 🙂🙂 👩‍👩‍👧 🇩🇪
for (int i = 0; i < n; i++) { sum += x[i]; }\n\n\treturn sum;\r\n\r\n    if (done) break;\n"""
WHITE = [
    " ",
    "  ",
    "   ",
    "\n",
    "\r\n",
    " \n ",
    "\t\t",
    "\u00a0",
    "\u180e",
    "\u2028",
    "\u2029",
    "\u3000",
    "\u0085",
    "\u1680",
    "\u2003",
    "\u200b",
    "\u202f",
    "\u205f",
    "\v",
    "\f",
    "\ufeff",
]
TEXTS = [
    "",
    " ",
    "a",
    PROSE,
    PROSE.upper(),
    "".join(map(chr, range(256))),
    "".join(map(chr, range(256, 1400))),
    "it's IT'S It'S we're WE'RE we'Re I'll I'LL they've 'tis 'Twas '' 's's'S it'\u017f 'd'D'm'M",
    "0 12 123 1234 12345 123456 1234567 ½ ² Ⅷ ٣٤٥٦ 𝟘𝟙𝟚𝟛",
    "a" * 3000,
    "ab" * 500,
    " " * 500,
    "\n" * 500,
    "1" * 500,
    "!" * 300 + "\r\n\r\n",
    "Größe" * 200,
    "日本" * 300,
    "🙂" * 100,
    "e\u0301 o\u0308\u0323 \u1112\u1161\u11ab \u212b \u2126 \ufb01",
    "<|endoftext|>",
    "a<|endoftext|>b <|endoftext|> c",
    "<|end",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_start|><|im_start|>x<|im_start",
    "<<|endoftext|>>",
    "new york, New York",
    "the new yorker",
    "x=1;y='t';z=\"don't\"",
    "https://example.org/?q=1&r=%20#top",
    "\u0000\u0001\u007f",
    "\U0001f9d1\u200d\U0001f4bb",
]


def texts(few):
    random_ = random.Random(5)
    words = PROSE.split() + [
        "<|endoftext|>",
        "<|im_start|>",
        "new york",
        "'s",
        "'LL",
        "12345",
        "!!",
        "--",
    ]
    out = (
        TEXTS
        + [f"a{w}{v}b" for w in WHITE for v in WHITE[::3] + [""]]
        + [f"{w}1{w}!{w}" for w in WHITE]
    )
    for _ in range(150):
        out.append("".join(random_.choice(words) + random_.choice(WHITE + ["", "", " ", " "])
                           for _ in range(random_.randint(1, 25))))
    more = [
        BLANK,
        f"a{BLANK}b {BLANK}",
        "<0x41>",
        "<s>a</s>b",
        "  two",
        "aAbB don't DON'T/x",
        "\ufb01\uff21\u3000\u00bd",
    ]
    return [t for t in out[::3] if len(t) < 300] + more if few else out


def pre_tokenizer(name):
    steps = [pre_tokenizers.Split(Regex(e), "isolated") for e in PATTERNS[name]]
    if name == "smollm":
        steps = [pre_tokenizers.Digits(individual_digits=True)]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name in ("gpt2", "smollm"))
    return pre_tokenizers.Sequence(steps + [level]) if steps else level


def train(name):
    made = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    made.pre_tokenizer = pre_tokenizer(name)
    made.decoder = decoders.ByteLevel()
    if name in ("qwen2", "o200k"):
        made.normalizer = normalizers.NFC() if name == "qwen2" else normalizers.NFKC()
    made.train_from_iterator([PROSE], trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    if name not in ("qwen2", "o200k"):
        made.add_tokens([AddedToken("new york", normalized=True)])
    return made


def train_fallback(name):
    """Over characters, with bytes for others: Llama 2's whole texts, Mistral's Metaspace."""
    first = Tokenizer(models.BPE())
    first.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=name == "llama2")
    first.train_from_iterator([PROSE], trainers.BpeTrainer(vocab_size=200, show_progress=False))
    learnt = json.loads(first.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + list(learnt["vocab"])
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learnt["merges"]]
    made = Tokenizer(
        models.BPE(
            {t: i for i, t in enumerate(names)},
            merges,
            byte_fallback=True,
            unk_token="<unk>",
            fuse_unk=True,
        )
    )
    if name == "llama2":
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)]
        )
    else:
        made.pre_tokenizer = first.pre_tokenizer
    made.decoder = decoders.Sequence(
        [
            decoders.Replace(BLANK, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(
        [AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>", "<|im_start|>")]
    )
    made.add_tokens([AddedToken("new york", normalized=True)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return made


def make_pieces(folder):
    """pieces.model: sentencepiece's own, with Llama 2's options and a symbol of a user's."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PROSE.splitlines()),
        model_writer=made,
        model_type="bpe",
        vocab_size=440,
        minloglevel=2,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        byte_fallback=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        character_coverage=0.99,
        user_defined_symbols=["<|im_start|>"],
    )
    (folder / "pieces.model").write_bytes(made.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    cases = [
        case(text, pieces.encode(text), pieces.decode(pieces.encode(text))) for text in texts(True)
    ]
    (folder / "pieces.cases").write_bytes(b"".join(cases))


def case(text, ids, back):
    return (
        counted(text.encode())
        + struct.pack("<I", len(ids))
        + struct.pack(f"<{len(ids)}i", *ids)
        + counted(back.encode())
    )


def counted(items):
    return struct.pack("<I", len(items)) + items


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name in PATTERNS:
        made = train_fallback(name) if name in ("llama2", "mistral") else train(name)
        made.save(str(folder / f"{name}.json"), pretty=False)
        cases = b""
        for text in texts(name in FEW):
            ids = made.encode(text, add_special_tokens=False).ids
            back = (
                text if name in ("gpt2", "llama3") else made.decode(ids, skip_special_tokens=False)
            )
            cases += case(text, ids, back)
        (folder / f"{name}.cases").write_bytes(cases)
    make_pieces(folder)


main()
