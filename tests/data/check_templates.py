#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The renderer of chat templates (python/echelon/chats.py): spans of {% generation %}, and hostile
templates. These loop, write too much, raise, reach for the interpreter or are not Jinja. Each is an
error that names file and line, of the template or of the conversation, and no file is left.

check_templates.py; exit code 77 without jinja2."""
import importlib.util
import json
import pathlib
import sys
import tempfile

SPANS = (
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
)
PREFIXES = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Templates, and what the error says.
HOSTILE = {
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}":
        "in.jsonl:2: the template takes more than 2 s",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "chat_template.jinja:1 raises Recursion",
    "{{ raise_exception('no') }}": "in.jsonl:2: the template refuses it: no",
    "\n\n{{ messages.__class__.__mro__ }}": "chat_template.jinja:3 raises SecurityError",
    "{{ 'a' * 99999999999 }}": "chat_template.jinja:1 raises MemoryError",
    "{{ range(99999999999) | list }}": "chat_template.jinja:1 raises OverflowError",
    "{{ messages[0].content.x.y }}": "chat_template.jinja:1 raises UndefinedError",
    "\n{% for m in messages %}": "chat_template.jinja:2: not Jinja: Unexpected end of template",
    "{% for i in range(99) %}{{ 'a' * 99 }}{% endfor %}":
        "in.jsonl:2: more than 5000 characters are written",
    "{{ messages.append(1) }}": "chat_template.jinja:1 raises SecurityError",
    "{% include 'x' %}": "chat_template.jinja:1 raises TypeError: no loader",
    "{{ messages | length }}{{ messages[0].content }}": "has no {% generation %} spans",
}
CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": ""}]


def open_python():
    """python/echelon/chats.py, which needs no more of the package."""
    path = pathlib.Path(__file__).parents[2] / "python" / "echelon" / "chats.py"
    spec = importlib.util.spec_from_file_location("chats", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(segments):
    """The text, with what is trained on between brackets."""
    return "".join(f"[{s['text']}]" if s["trained"] else s["text"] for s in segments)


def check_spans(python):
    for template in (SPANS, PREFIXES):
        renderer = python.Renderer(template)
        is_ = trained(renderer.segments(CHAT))
        assert is_ == "<user>a;<assistant>[b;]<user>c;<assistant>[;]", is_
        is_ = trained(renderer.segments(CHAT, 3))  # three messages are the prompt
        assert is_ == "<user>a;<assistant>b;<user>c;<assistant>[;]", is_


def check_hostile(python, folder):
    (folder / "in.jsonl").write_text("\n" + json.dumps({"messages": CHAT}) + "\n")
    python.MOST_SECONDS, python.MOST_CHARACTERS = 2, 5000
    for template, says in HOSTILE.items():
        (folder / "chat_template.jinja").write_text(template)
        try:
            python.render_file(folder / "in.jsonl", folder / "no.jsonl", folder)
            sys.exit(f"not refused: {template}")
        except python.TemplateError as error:
            if says not in str(error):
                sys.exit(f"{template}: {error}")
        assert not list(folder.glob("no.jsonl*")), template


def main():
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        print("skipped:", error, "for", sys.executable)
        sys.exit(77)
    python = open_python()
    check_spans(python)
    with tempfile.TemporaryDirectory() as folder:
        check_hostile(python, pathlib.Path(folder))
    print(f"{len(HOSTILE)} hostile templates are refused")


if __name__ == "__main__":
    main()
