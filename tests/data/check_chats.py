#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chats against Hugging Face's transformers: `echelon data` writes the ids and the masks of
apply_chat_template with return_assistant_tokens_mask, for fifty conversations by each template.

check_chats.py ECHELON; exit code 77 where a library is missing. Published templates do not say
which tokens are the assistant's, so {% generation %} is put into them here; the text stays the
same. """
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
import check_templates
from chat_templates import OTHERS, TEMPLATES, published
from texts_of_tokenizers import corpus

CONVERSATIONS = 50
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MARKS = {
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "phi3": ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
    "gemma": ["<start_of_turn>", "<end_of_turn>"],
    "mistral-": ["[INST]", "[/INST]"],
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
    family = next((f for f in MARKS if row.startswith(f)), row)
    if row.startswith(("gemma", "mistral", "zephyr")):
        tokens, merges = check_pieces.vocabulary_of(check_pieces.learn(lines))
        made = check_pieces.family("gemma" if "gemma" in row else "first-whole", tokens, merges)
        marks = [] if row == "mistral-0.1" else MARKS.get(family, [])
        made.add_special_tokens([AddedToken(t, normalized=False) for t in marks])
        return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    if family == "llama3":
        made = byte_level(lines, MARKS["llama3"], False)
        return PreTrainedTokenizerFast(
            tokenizer_object=made, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>"
        )
    marks = {"plain": [], "phi3": MARKS["phi3"]}.get(row, MARKS["chatml"])
    made = byte_level(lines, marks, marks == MARKS["chatml"])
    eos = "<|im_end|>" if marks == MARKS["chatml"] else "<|endoftext|>"
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
    for old, new in MARKED:
        text = text.replace(old, new)
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


SPANS = "{%% generation %%}%s{%% endgeneration %%}"
HEADER = "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
QWEN3 = "{{- '<|im_start|>' + message.role + '\\n"
THOUGHT = (
    "<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n')"
)
PHI3_END = "{% else %}{{ eos_token }}{% endif %}"
# Of long templates: what is replaced, and by what.
MARKED = (
    ("{{- " + HEADER + "+ message['content'] | trim + '<|eot_id|>' }}",
     "{{- '' }}" + in_generation(HEADER, "message['content'] | trim + '<|eot_id|>'", "''")),
    (QWEN3 + THOUGHT + " }}",
     QWEN3 + "' }}" + SPANS % ("{{- '" + THOUGHT + " + '<|im_end|>' }}")),
    (QWEN3 + "' + content }}", QWEN3 + "' }}" + SPANS % "{{- content + '<|im_end|>' }}"),
    ("        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\"",
     "        {{- '\\n' }}\n    {%- elif message.role == \"tool\""),
    ('{{- " " + message["content"]|trim + eos_token}}',
     '{{- " " }}' + SPANS % '{{- message["content"]|trim + eos_token }}'),
    ('{{- message["content"] + eos_token}}', SPANS % '{{- message["content"] + eos_token }}'),
    ("{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}",
     "{{'<|assistant|>\n'}}" + SPANS % "{{ message['content'] + '<|end|>' }}" + "{{'\n'}}"),
    (PHI3_END,
     "{% elif messages[-1]['role'] == 'assistant' %}" + SPANS % "{{ eos_token }}" + PHI3_END),
    *(("{{ '<|assistant|>%s'  + message['content'] + eos_token }}" % nl,
       "{{ '<|assistant|>%s' }}" % nl + SPANS % "{{ message['content'] + eos_token }}" + "{{ '' }}")
      for nl in ("\n", "\\n")),
)


def content(random_, lines):
    around = ["", "", "", " ", "\n", "\n\n", "\t ", "\u00a0", "\u3000\n"]
    inside = random_.choice(lines)[: random_.randint(0, 90)]
    odd = ["", "", "", "", "<|im_end|>", "</s>", "'s", "e\u0301", "<|endoftext|> x", "</think>\n\n"]
    thought = random_.choice(["", "", "", "<think>\n\n", "<think> so\n</think>\n"])
    made = thought + inside + random_.choice(odd)
    whole = random_.choice([made, made, made, "", f"<tool_response>{inside}</tool_response>"])
    return random_.choice(around) + whole + random_.choice(around)


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


def check_rendered(python, echelon, folder, row, text, marked, theirs, chats):
    """The Python package renders the template `text`, which trains on the spans of `marked`."""
    theirs.chat_template = text
    theirs.save_pretrained(folder / "tokenizer")
    assert python.render_file(folder / "in.jsonl", folder / "out.jsonl",
                              folder / "tokenizer") == len(chats)
    done = subprocess.run(
        [echelon, "data", "out.jsonl", "rendered", "--tokenizer", "tokenizer"],
        cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{row}, rendered: {done.stderr}")
    compare(row, theirs, marked, chats, read_documents(folder / "rendered"))


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
    write_chats(folder, chats)
    done = subprocess.run(
        [echelon, "data", "in.jsonl", "out", "--tokenizer", "tokenizer"],
        cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{row}: {done.stderr}")
    check_left_out(row, chats, done.stdout)
    for messages in chats:
        plain = theirs.apply_chat_template(messages, tokenize=False)
        if theirs.apply_chat_template(messages, chat_template=marked, tokenize=False) != plain:
            sys.exit(f"{row}: the marked template gives another text: {plain!r}")
    tokens = compare(row, theirs, marked, chats, read_documents(folder / "out"))
    check_rendered(python, echelon, folder, row, marked, marked, theirs, chats)
    return tokens


def check_left_out(row, chats, said):
    """Mistral's template writes a system message only if the last message is a user's."""
    ends = [m[0]["role"] == "system" and m[-1]["role"] == "assistant" for m in chats]
    lost = sum(ends) if row in ("mistral-v0.3", "mistral-nemo") else 0
    if (f"left out: {lost} system message" in said) != (lost > 0):
        sys.exit(f"{row}: {lost} system messages are not written: {said}")


def write_chats(folder, chats):
    lines = [line_of(messages, i) for i, messages in enumerate(chats)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def check_other(python, echelon, folder, row, name, lines, random_):
    """A template that is not built in: by its own spans, or by prompts where it has none."""
    text = published(name)
    theirs = tokenizer_for(row, lines)
    chats = conversations(row, random_, lines)
    write_chats(folder, chats)
    marked = text if "generation %}" in text else with_generation(text)
    assert "generation %}" in marked, name
    check_rendered(python, echelon, folder, row, marked, marked, theirs, chats)
    if name == "llama3.2":  # messages come one after the other
        check_rendered(python, echelon, folder, row, text, marked, theirs, chats)
    done = subprocess.run(
        [echelon, "data", "in.jsonl", "out", "--tokenizer", "tokenizer"],
        cwd=folder, capture_output=True, text=True)
    if done.returncode != 2 or "python -m echelon.chats IN OUT" not in done.stderr:
        sys.exit(f"{name} is not refused with the command: {done.returncode} {done.stderr}")


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
    python = check_templates.open_python()
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
                    check_refused(echelon, pathlib.Path(folder), theirs)
    for row, names in OTHERS.items():
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                check_other(python, echelon, pathlib.Path(folder), row, name, lines, random_)
    print(f"{texts} templates of {len(TEMPLATES)} rows, {CONVERSATIONS} conversations each: "
          f"{tokens} tokens and their masks are equal, built in and rendered in Python; "
          f"{sum(map(len, OTHERS.values()))} other templates are equal, rendered in Python")


if __name__ == "__main__":
    main()
