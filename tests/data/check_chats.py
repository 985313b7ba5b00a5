#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chats against Hugging Face's transformers: `echelon data` writes the ids and the masks of
apply_chat_template with return_assistant_tokens_mask, for fifty conversations by each template.

check_chats.py ECHELON; exit code 77 where a library is missing. Published templates do not say
which tokens are the assistant's, so {% generation %} is put into them here; the text stays the
same. """
import importlib.util
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import jinja2  # noqa: F401
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
except ImportError as error:
    print("skipped:", error, "for", sys.executable)
    sys.exit(77)

import check_pieces
from chat_templates import TEMPLATES
from texts_of_tokenizers import corpus

CONVERSATIONS = 50
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MARKS = {
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "qwen2.5": ["<|im_start|>", "<|im_end|>"],
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
}


def byte_level(lines, marks, composes):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    if composes:
        made.normalizer = normalizers.NFC()
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(lines, trainer)
    made.add_special_tokens([AddedToken(t, normalized=False) for t in ["<|endoftext|>", *marks]])
    return made


def tokenizer_for(row, lines):
    """A tokenizer of the kind that models with this template have."""
    if row.startswith(("gemma", "mistral")):
        tokens, merges = check_pieces.vocabulary_of(check_pieces.learn(lines))
        made = check_pieces.family("gemma" if "gemma" in row else "first-whole", tokens, merges)
        marks = ["<start_of_turn>", "<end_of_turn>"] if "gemma" in row else []
        made.add_special_tokens([AddedToken(t, normalized=False) for t in marks])
        return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    if row == "llama3":
        made = byte_level(lines, MARKS["llama3"], False)
        return PreTrainedTokenizerFast(
            tokenizer_object=made, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>"
        )
    made = byte_level(lines, [] if row == "plain" else MARKS["chatml"], row != "plain")
    eos = "<|endoftext|>" if row == "plain" else "<|im_end|>"
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=eos)


def in_generation(before, kept, after):
    """Jinja that prints `kept` between two texts, and marks it for the assistant."""
    return (
        "{{ " + before + " }}{% if message['role'] == 'assistant' %}{% generation %}{{ " + kept
        + " }}{% endgeneration %}{% else %}{{ " + kept + " }}{% endif %}{{ " + after + " }}"
    )


def with_generation(text):
    """The template with the assistant's content, and what ends its turn, marked."""
    for nl in ("\n", "\\n"):
        text = text.replace(
            f"{{{{'<|im_start|>' + message['role'] + '{nl}' + message['content'] + '<|im_end|>' + "
            f"'{nl}'}}}}",
            in_generation(f"'<|im_start|>' + message['role'] + '{nl}'",
                          "message['content'] + '<|im_end|>'", f"'{nl}'"),
        )
        text = text.replace(
            "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}",
            "{{- '' }}" + in_generation("'<|im_start|>' + message.role + '\\n'",
                                        "message.content + '<|im_end|>'", "'\\n'"),
        )
        text = text.replace(
            "{% set content = '<|start_header_id|>' + message['role'] + "
            f"'<|end_header_id|>{nl}{nl}'"
            "+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
            "{% set content = bos_token + content %}{% endif %}{{ content }}",
            "{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}"
            + in_generation(
                f"'<|start_header_id|>' + message['role'] + '<|end_header_id|>{nl}{nl}'",
                "message['content'] | trim + '<|eot_id|>'", "''"),
        )
        text = text.replace(
            f"{{{{ '<start_of_turn>' + role + '{nl}' + message['content'] | trim + "
            f"'<end_of_turn>{nl}' }}}}",
            in_generation(f"'<start_of_turn>' + role + '{nl}'",
                          "message['content'] | trim + '<end_of_turn>'", f"'{nl}'"),
        )
    text = text.replace(
        "{%- if message['content'] is string -%}\n        {{ message['content'] | trim }}",
        "{%- if message['content'] is string -%}"
        + in_generation("''", "message['content'] | trim + '<end_of_turn>'", "''"),
    ).replace("{{ '<end_of_turn>\n' }}", "{{ '\n' }}")
    for rest in ("''", "' '"):
        end = "eos_token}}" if rest == "''" else "eos_token + ' ' }}"
        text = text.replace(
            "{{ message['content'] + " + end,
            "{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{{ "
            + rest + " }}",
        )
    return text.replace(
        "{{ 'Assistant: ' + message['content'] + eos_token }}",
        "{{ 'Assistant: ' }}{% generation %}{{ message['content'] + eos_token }}"
        "{% endgeneration %}",
    )


def content(random_, lines):
    around = ["", "", "", " ", "\n", "\n\n", "\t ", "\u00a0", "\u3000\n"]
    inside = random_.choice(lines)[: random_.randint(0, 90)]
    odd = ["", "", "", "", "<|im_end|>", "</s>", "'s", "e\u0301", "<|endoftext|> x"]
    return random_.choice(around) + inside + random_.choice(odd) + random_.choice(around)


def conversations(row, random_, lines):
    systems = row not in ("gemma", "mistral", "mistral-0.1")
    out = []
    for _ in range(CONVERSATIONS):
        turns = random_.randint(2, 7)
        roles = ["user", "assistant"] * 4
        messages = [{"role": r, "content": content(random_, lines)} for r in roles[:turns]]
        if systems and random_.random() < 0.5:
            messages.insert(0, {"role": "system", "content": content(random_, lines)})
        out.append(messages)
    return out


def read_documents(prefix):
    """(ids, mask) of each document of a token file."""
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    assert index[:9] == b"MMIDIDX\0\0"
    code, sequences, entries = struct.unpack_from("<BQQ", index, 17)
    width = {8: "H", 4: "i"}[code]
    at = 34
    lengths = struct.unpack_from(f"<{sequences}i", index, at)
    at += 12 * sequences
    documents = struct.unpack_from(f"<{entries}q", index, at)
    at += 8 * entries
    modes = struct.unpack_from(f"<{sequences}b", index, at) if at < len(index) else [0] * sequences
    data = pathlib.Path(f"{prefix}.bin").read_bytes()
    ids = struct.unpack(f"<{len(data) // struct.calcsize(width)}{width}", data)
    out, token = [], 0
    for begin, end in zip(documents, documents[1:]):
        document, mask = [], []
        for s in range(begin, end):
            document += ids[token : token + lengths[s]]
            mask += [1 - modes[s]] * lengths[s]
            token += lengths[s]
        out.append((document, mask))
    return out


SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"}


def line_of(messages, number):
    if number % 3 == 1:
        turns = [{"from": SHAREGPT[m["role"]], "value": m["content"]} for m in messages]
        return json.dumps({"id": number, "conversations": turns})
    return json.dumps({"messages": messages}, ensure_ascii=number % 3 == 0)


def compare(row, theirs, template, chats, documents):
    """Ids and masks of `echelon data` against those of transformers. Returns the tokens."""
    tokens = 0
    for messages, (ids, mask) in zip(chats, documents, strict=True):
        wanted = theirs.apply_chat_template(
            messages, chat_template=template, tokenize=True, return_dict=True,
            return_assistant_tokens_mask=True)
        if wanted["input_ids"] != ids or wanted["assistant_masks"] != mask:
            expected = list(zip(wanted["input_ids"], wanted["assistant_masks"]))
            sys.exit(f"{row}: {messages!r}\n{expected}\n{list(zip(ids, mask))}")
        tokens += len(ids)
    return tokens


def check_rendered(python, echelon, folder, row, marked, theirs, chats):
    """The Python package renders a template that is not built in."""
    theirs.chat_template = marked
    theirs.save_pretrained(folder / "tokenizer")
    assert python.render_file(folder / "in.jsonl", folder / "out.jsonl",
                              folder / "tokenizer") == len(chats)
    done = subprocess.run(
        [echelon, "data", "out.jsonl", "rendered", "--tokenizer", "tokenizer"],
        cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{row}, rendered: {done.stderr}")
    compare(row, theirs, marked, chats, read_documents(folder / "rendered"))


HOSTILE = {
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}":
        "more than 2 s",
    "{{ raise_exception('no') }}": "in.jsonl:1: the template refuses it: no",
    "{{ messages.__class__.__mro__ }}": "raises SecurityError",
    "{{ 'a' * 99999999999 }}": "MemoryError",
    "{% for m in messages %}": "no Jinja",
    "{% for i in range(99) %}{{ 'a' * 99 }}{% endfor %}": "more than 5000 characters are written",
    "{{ messages.append(1) }}": "raises SecurityError",
    "{{ messages | length }}{{ messages[0].content }}": "has no {% generation %} spans",
}


def check_hostile(python, folder):
    before = python.MOST_SECONDS, python.MOST_CHARACTERS
    python.MOST_SECONDS, python.MOST_CHARACTERS = 2, 5000
    for template, says in HOSTILE.items():
        (folder / "tokenizer" / "chat_template.jinja").write_text(template)
        try:
            python.render_file(folder / "in.jsonl", folder / "no.jsonl", folder / "tokenizer")
            sys.exit(f"not refused: {template}")
        except python.TemplateError as error:
            if says not in str(error):
                sys.exit(f"{template}: {error}")
        assert not list(folder.glob("no.jsonl*"))
    python.MOST_SECONDS, python.MOST_CHARACTERS = before


def open_python():
    """python/echelon/chats.py, which needs no more of the package."""
    path = pathlib.Path(__file__).parents[2] / "python" / "echelon" / "chats.py"
    spec = importlib.util.spec_from_file_location("chats", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(python, echelon, folder, row, text, theirs, chats):
    marked = with_generation(text)
    assert "{% generation %}" in marked, (row, marked)
    theirs.chat_template = text
    theirs.save_pretrained(folder / "tokenizer")
    if len(row) % 2:  # where older versions have it
        (folder / "tokenizer" / "chat_template.jinja").unlink()
        path = folder / "tokenizer" / "tokenizer_config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "chat_template": text}))
    lines = [line_of(messages, i) for i, messages in enumerate(chats)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [echelon, "data", "in.jsonl", "out", "--tokenizer", "tokenizer"],
        cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{row}: {done.stderr}")
    for messages in chats:
        plain = theirs.apply_chat_template(messages, tokenize=False)
        if theirs.apply_chat_template(messages, chat_template=marked, tokenize=False) != plain:
            sys.exit(f"{row}: the marked template gives another text: {plain!r}")
    tokens = compare(row, theirs, marked, chats, read_documents(folder / "out"))
    check_rendered(python, echelon, folder, row, marked, theirs, chats)
    return tokens


def check_refused(echelon, folder, theirs):
    """A template that is none of the built-in ones, which a text does not need."""
    theirs.chat_template = TEMPLATES["chatml"][0] + " "
    theirs.save_pretrained(folder / "tokenizer")
    for line, code, says in (
        (json.dumps({"messages": [{"role": "user", "content": "a"}]}), 2, "none of the built-in"),
        (json.dumps({"text": "a"}), 0, ""),
    ):
        (folder / "in.jsonl").write_text(line + "\n")
        done = subprocess.run(
            [echelon, "data", "in.jsonl", "out", "--tokenizer", "tokenizer"],
            cwd=folder, capture_output=True, text=True)
        if done.returncode != code or says not in done.stderr:
            sys.exit(f"refused: {done.returncode} {done.stderr}")


def main():
    python = open_python()
    random_ = random.Random(5)
    lines = corpus(random_, 400)
    echelon = str(pathlib.Path(sys.argv[1]).resolve())
    texts = tokens = 0
    for row, published in TEMPLATES.items():
        for text in published:
            with tempfile.TemporaryDirectory() as folder:
                theirs = tokenizer_for(row, lines)
                chats = conversations(row, random_, lines)
                tokens += check(python, echelon, pathlib.Path(folder), row, text, theirs, chats)
                texts += 1
                if row == "chatml":
                    check_hostile(python, pathlib.Path(folder))
                    check_refused(echelon, pathlib.Path(folder), theirs)
    print(f"{texts} templates of {len(TEMPLATES)} rows, {CONVERSATIONS} conversations each: "
          f"{tokens} tokens and their masks are equal, built in and rendered in Python")


if __name__ == "__main__":
    main()
