#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ids that Hugging Face's library `tokenizers` (0.23.3) gives with patterns of tokenizer.json that
Echelon has no name for: tests/fixtures/bpe/patterns.json.

make_pattern_fixtures.py tests/fixtures/bpe
"""
import json
import pathlib
import random
import sys

import tokenizers

KEEP = [*range(33, 127), *range(161, 173), *range(174, 256)]
NANOCHAT = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
LEVEL = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
GPT2 = dict(LEVEL, use_regex=True)
PIECES = [
    "Hello",
    " world",
    "'s",
    "'S",
    "'ſ",
    "’t",
    "'LL",
    "123",
    "4567",
    " 89",
    "\u00b2\u00b3",
    "½",
    "٣٤٥",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    "\u00a0",
    "\u180e",
    "\u3000",
    "\u2028",
    "。",
    "、",
    "，",
    "！",
    "!",
    "?...",
    "(a|b)",
    "[x]",
    "漢字",
    "かな",
    "カナ・",
    "한국어",
    "e\u0301",
    "a\u0300",
    "x^2",
    "$5",
    "<|x|>",
    "_",
    "a-b",
    "ab",
    "abc",
    "xyz",
    "++",
    "==",
    "\v",
    "ß",
    "ǅ",
    "ⅷ",
    "①",
    "\U0001f600",
    "\u200d",
    "i\u0307",
    "।",
    "۔",
    "،",
    "éé",
]


def split(expression):
    return dict(type="Split", pattern=dict(Regex=expression), behavior="Isolated", invert=False)


# MPT's is ByteLevel alone.
PATTERNS = {
    "nanochat": [split(NANOCHAT), LEVEL],
    "bloom": [split(BLOOM), LEVEL],
    "falcon": [
        dict(type="Punctuation", behavior="Contiguous"),
        GPT2,
        dict(type="Digits", individual_digits=False),
        split("[0-9][0-9][0-9]"),
    ],
    "mpt": [GPT2],
    "others": [
        split(r"\p{N}{1,3}+|[\p{Han}\p{Hiragana}]+|\p{Hangul}+"),
        split(
            r"(?<=\p{L})[^\p{L}\s]+|^\s+|\s++$|(?>a|ab)c?|(x|y)+?z|[+\-*/=<>!&|]{1,2}|.[\x{300}-\u036f]"
        ),
        dict(type="Punctuation"),
        dict(type="Digits", individual_digits=True),
        LEVEL,
    ],
}


def names():
    made = {b: chr(b) for b in KEEP}
    for b in range(256):
        made.setdefault(b, chr(256 + len(made) - len(KEEP)))
    return made


def texts(chance, n):
    return ["".join(chance.choices(PIECES, k=chance.randint(1, 12))) for _ in range(n)]


def make(steps, chance):
    name, merges = names(), []
    for text in texts(chance, 200):
        shown = [name[b] for b in text.encode()]
        for pair in zip(shown, shown[1:]):
            if list(pair) not in merges and chance.random() < 0.3 and len(merges) < 300:
                merges.append(list(pair))
    vocabulary = {name[b]: b for b in range(256)}
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    end = dict(
        id=len(vocabulary),
        content="<y>",
        special=True,
        normalized=False,
        single_word=False,
        lstrip=False,
        rstrip=False,
    )
    pre = steps[0] if len(steps) == 1 else dict(type="Sequence", pretokenizers=steps)
    return dict(
        version="1.0",
        truncation=None,
        padding=None,
        added_tokens=[end],
        normalizer=None,
        pre_tokenizer=pre,
        post_processor=None,
        decoder=LEVEL,
        model=dict(
            type="BPE",
            dropout=None,
            unk_token=None,
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=False,
            byte_fallback=False,
            vocab=vocabulary,
            merges=merges,
        ),
    )


def main():
    rows = []
    for number, steps in enumerate(PATTERNS.values()):
        chance = random.Random(number)
        file = make(steps, chance)
        library = tokenizers.Tokenizer.from_str(json.dumps(file))
        row = dict(file=file, texts=texts(chance, 60))
        row["ids"] = [library.encode(text).ids for text in row["texts"]]
        vocabulary = file["model"]["vocab"]
        file["model"]["vocab"] = {
            name: n for name, n in vocabulary.items() if n >= 256
        }  # bytes are their numbers
        rows.append(row)
    path = pathlib.Path(sys.argv[1]) / "patterns.json"
    path.write_text(json.dumps(dict(rows=rows), separators=(",", ":")) + "\n")


main()
