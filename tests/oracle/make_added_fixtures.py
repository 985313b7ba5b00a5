#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ids that Hugging Face's library `tokenizers` (0.23.3) gives to texts with added tokens, whose
flags lstrip, rstrip, single_word and normalized vary: tests/fixtures/bpe/added.json. Without
special tokens, too.

make_added_fixtures.py tests/fixtures/bpe
"""
import json
import pathlib
import random
import sys

import tokenizers

KEEP = [*range(33, 127), *range(161, 173), *range(174, 256)]
NAMES = ["<x>", "foo", "<y>", " bar", "é", "<x><", "\n#", "o f"]
PIECES = NAMES + [
    " ",
    "  ",
    "\n",
    "\t",
    "a",
    "_",
    "\u00a0",
    "\u3000",
    "e\u0301",
    "1",
    "\u200d",
    ".",
    "ß",
    "\u2028",
    " <x>  ",
    "foo foo",
    "\u24b6",
    "\u0663",
]


def byte_vocabulary():
    names = {b: chr(b) for b in KEEP}
    for b in range(256):
        names.setdefault(b, chr(256 + len(names) - len(KEEP)))
    return {names[b]: b for b in range(256)}


def make(number):
    chance = random.Random(number)
    added, free, vocabulary = [], 256, byte_vocabulary()
    for name in NAMES:  # é is how byte 233 is written, and has its id
        flag = {key: chance.random() < share for key, share in
                (("lstrip", 0.4), ("rstrip", 0.4), ("single_word", 0.3), ("normalized", 0.3))}
        added.append(
            dict(id=vocabulary.get(name, free), content=name, special=name[0] == "<", **flag)
        )
        free += name not in vocabulary
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added,
                normalizer=dict(type="NFC") if number % 3 == 2 else None, pre_tokenizer=level,
                post_processor=None, decoder=level,
                model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                           end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                           vocab=vocabulary, merges=[]))


def main():
    rows = []
    for number in range(9):
        file = make(number)
        library = tokenizers.Tokenizer.from_str(json.dumps(file))
        chance = random.Random(100 + number)
        texts = ["".join(chance.choices(PIECES, k=chance.randint(1, 10))) for _ in range(40)]
        row = dict(file=file, texts=texts, ids=[library.encode(text).ids for text in texts])
        library.encode_special_tokens = True
        row["plain"] = [library.encode(text).ids for text in texts]
        file["model"]["vocab"] = {}  # bytes are their numbers
        rows.append(row)
    path = pathlib.Path(sys.argv[1]) / "added.json"
    path.write_text(json.dumps(dict(rows=rows), separators=(",", ":")) + "\n")


main()
