#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ids that transformers (5.24) gives to texts with added tokens that tokenizer.json does not have,
but files beside it: tests/fixtures/bpe/sides.json. tokenizer.json is over bytes, which are their
ids.

make_sides_fixtures.py tests/fixtures/bpe
"""
import json
import pathlib
import random
import sys
import tempfile

import transformers

KEEP = [*range(33, 127), *range(161, 173), *range(174, 256)]
NAMES = ["<x>", "foo", "<y>", " bar", "é", "o f", "b"]
PIECES = NAMES + [" ", "  ", "a", "_", "1", ".", " <x>  ", "foo foo", "<|endoftext|>", "oo", "ba"]
END = dict(
    id=256,
    content="<|endoftext|>",
    special=True,
    normalized=False,
    lstrip=False,
    rstrip=False,
    single_word=False,
)


def byte_vocabulary():
    names = {b: chr(b) for b in KEEP}
    for b in range(256):
        names.setdefault(b, chr(256 + len(names) - len(KEEP)))
    return {names[b]: b for b in range(256)}


def make(chance, number):
    """The files of a folder."""
    vocabulary, free, listed, more = byte_vocabulary(), 257, [], []
    for name in chance.sample(NAMES, chance.randint(2, len(NAMES))):
        known = vocabulary.get(name)
        flags = {key: chance.random() < 0.3 for key in ("lstrip", "rstrip", "single_word")}
        special = chance.random() < 0.5
        row = dict(
            content=name, special=special, normalized=not special or chance.random() < 0.2, **flags
        )
        to = listed if chance.random() < 0.3 and not more else more
        if known is None:
            # The library numbers tokens itself: some files say other ids.
            row["id"], free = free + (5 if number % 4 == 3 and to is more else 0), free + 1
        else:
            row["id"] = known
        to.append(row)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    main = dict(
        version="1.0",
        truncation=None,
        padding=None,
        added_tokens=[END] + listed,
        normalizer=None,
        pre_tokenizer=level,
        post_processor=None,
        decoder=level,
        model=dict(
            type="BPE",
            dropout=None,
            unk_token=None,
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=False,
            byte_fallback=False,
            vocab=vocabulary,
            merges=[],
        ),
    )
    config = dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|endoftext|>")
    files = {"tokenizer.json": main, "tokenizer_config.json": config}
    if number % 2:
        if more:
            config["pad_token"] = more[0]["content"]
        files["added_tokens.json"] = {row["content"]: row["id"] for row in more}
    else:
        rows = [END] + listed + more
        chance.shuffle(rows)
        config["added_tokens_decoder"] = {
            str(row["id"]): {key: row[key] for key in row if key != "id"} for row in rows}
        if number % 6 == 4:  # not read where there is the other
            files["added_tokens.json"] = {"ba": 300}
    return files


def main():
    rows = []
    for number in range(16):
        chance = random.Random(number)
        files = make(chance, number)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                (pathlib.Path(folder) / name).write_text(json.dumps(content))
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            texts = ["".join(chance.choices(PIECES, k=chance.randint(1, 10))) for _ in range(30)]
            ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        files["tokenizer.json"]["model"]["vocab"] = {}  # bytes are their numbers
        rows.append(dict(files=files, texts=texts, ids=ids))
    path = pathlib.Path(sys.argv[1]) / "sides.json"
    path.write_text(json.dumps(dict(rows=rows), separators=(",", ":")) + "\n")


main()
