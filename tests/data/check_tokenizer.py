#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads the `bytes` tokenizer's files as Hugging Face does: ids must be the text's bytes.

check_tokenizer.py USE_TOKENIZER; exit code 77 where the library `tokenizers` is missing.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import tokenizers
except ImportError:
    print("skipped: no Python library `tokenizers` for", sys.executable)
    sys.exit(77)

END = 256
TEXTS = [
    "", " ", "a", "To be, or not to be:\n\tthat is the question.  ", "\x00\x01\x7f\x80\xff",
    "naïve Ærø — 東京 🙂 e\u0301\r\n", "".join(map(chr, range(0x800))), "word " * 1000,
]


def check(encode, decode, token_id):
    for text in TEXTS:
        ids = list(text.encode())
        assert encode(text) == ids, (text, encode(text))
        assert decode(ids) == text, (text, decode(ids))
    assert encode("a<|endoftext|>b") == [97, END, 98]
    assert token_id("<|endoftext|>") == END


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "bytes", "export", folder], check=True)
        path = pathlib.Path(folder)
        fast = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
        assert fast.get_vocab_size() == 257
        check(lambda text: fast.encode(text).ids, fast.decode, fast.token_to_id)
        config = json.loads((path / "tokenizer_config.json").read_text())
        assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
        print("tokenizers", tokenizers.__version__, "agrees")
        try:
            import transformers
        except ImportError:
            print("without transformers, which is not there")
            return
        auto = transformers.AutoTokenizer.from_pretrained(folder)
        assert len(auto) == 257 and auto.eos_token_id == END and auto.bos_token_id == END
        check(lambda text: auto(text)["input_ids"], auto.decode, auto.convert_tokens_to_ids)
        print("transformers", transformers.__version__, "agrees")


main()
