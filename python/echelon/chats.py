# SPDX-License-Identifier: Apache-2.0
"""Renders conversations with the chat template of a model's folder, whatever it is:

    python -m echelon.chats IN OUT --tokenizer FOLDER

IN has lines of JSON, or an array, with "messages", conversational "prompt" and "completion",
ShareGPT's "conversations", or Alpaca's "instruction" and "output". OUT gets a line for each, with
segments that have roles, and that `echelon data OUT TOKENS --tokenizer FOLDER` reads:

    {"segments": [{"role": "assistant", "text": "...", "trained": true}, ...]}

The template runs in Jinja's sandbox, in a process of its own, with limits on time, memory and
output. {% generation %} spans are trained on. A template without them must write each message
after the ones before; then an assistant's message is trained on from where a prompt for it ends.
"""
from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import pathlib
import re
import secrets
import sys
import traceback
from collections.abc import Iterator
from typing import Any

MOST_SECONDS = 10  # for a conversation
MOST_CHARACTERS = 16 << 20  # of a rendered one
MOST_MEMORY = 2 << 30  # bytes that rendering may add
ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}
KNOWN_ROLES = ("system", "user", "assistant")

Messages = list[dict[str, Any]]
Span = tuple[int, int]  # of characters


class TemplateError(Exception):
    """A template that cannot be used, or a conversation that it refuses."""


# ---- one template ----


class Renderer:
    """A chat template. Not for more than one thread."""

    def __init__(self, template: str, tokens: dict[str, str] | None = None,
                 name: str | os.PathLike[str] = "the template") -> None:
        """template: Jinja's text. tokens: bos_token, eos_token and others by name. name: of the
        template's file, for errors."""
        import jinja2
        import jinja2.ext
        from jinja2 import nodes
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        begin, end = (f"<{secrets.token_hex(16)}>" for _ in range(2))

        class Generation(jinja2.ext.Extension):
            """{% generation %} ... {% endgeneration %}: between two secret marks."""

            tags = {"generation"}

            def parse(self, parser: Any) -> Any:
                line = next(parser.stream).lineno
                body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
                call = self.call_method("mark")
                return nodes.CallBlock(call, [], [], body).set_lineno(line)

            def mark(self, caller: Any) -> str:
                return begin + caller() + end

        def raise_exception(message: object) -> None:
            raise TemplateError(f"the template refuses it: {message}")

        def to_json(value: object, ensure_ascii: bool = False, indent: Any = None,
                    separators: Any = None, sort_keys: bool = False) -> str:
            return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                              separators=separators, sort_keys=sort_keys)

        def strftime_now(form: str) -> str:  # Llama 3.2 writes today's date
            return datetime.datetime.now().strftime(form)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, jinja2.ext.loopcontrols],
        )
        environment.filters["tojson"] = to_json
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = strftime_now
        self._marks = re.compile(f"({re.escape(begin)}|{re.escape(end)})")
        self._begin = begin
        self._tokens = dict(tokens or {})
        self._name = os.fspath(name)
        try:
            self._template = environment.from_string(template)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{name}:{error.lineno}: not Jinja: {error.message}") from error

    def _write(self, messages: Messages, prompts: bool, more: dict[str, Any]) -> str:
        """The text with marks."""
        out: list[str] = []
        n = 0
        names = {**self._tokens, **more, "messages": messages, "add_generation_prompt": prompts}
        try:
            for piece in self._template.generate(names):
                n += len(piece)
                if n > MOST_CHARACTERS:
                    raise TemplateError(f"more than {MOST_CHARACTERS} characters are written")
                out.append(piece)
        except TemplateError:
            raise
        except Exception as error:  # a template may raise any
            raised = f"{type(error).__name__}: {error}"
            raise TemplateError(f"{self._place(error)} raises {raised}") from error
        return "".join(out)

    def _place(self, error: Exception) -> str:
        """The template's file, and its line that raises the error."""
        trace = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in trace if frame.filename == "<template>"]
        return f"{self._name}:{lines[-1]}" if lines else self._name

    def _split(self, text: str) -> tuple[str, list[Span]]:
        """The text without marks, and which spans of it are generation."""
        plain: list[str] = []
        spans: list[Span] = []
        at = begun = 0
        for part in self._marks.split(text):
            if not self._marks.fullmatch(part):
                plain.append(part)
                at += len(part)
            elif part == self._begin:
                begun = at
            else:
                spans.append((begun, at))
        return "".join(plain), spans

    def _ends(self, text: str, messages: Messages, more: dict[str, Any]) -> list[int | None]:
        """Where each message ends in the text; None: not known, since a template that may look at
        all messages writes the first ones otherwise where there are no others."""
        ends: list[int | None] = []
        for n in range(1, len(messages) + 1):
            try:
                head = self._split(self._write(messages[:n], False, more))[0]
            except TemplateError:
                head = None
            ends.append(None if head is None or not text.startswith(head) else len(head))
        ends[-1] = len(text)
        return ends

    def _prompt_end(self, text: str, messages: Messages, more: dict[str, Any]) -> int:
        """Where the prompt for the next message ends."""
        head = self._split(self._write(messages, True, more))[0]
        if not text.startswith(head):
            raise TemplateError(
                "the template has no {% generation %} spans, and writes a prompt that the "
                "conversation does not have; put the spans into it"
            )
        return len(head)

    def segments(self, messages: Messages, first_trained: int = 0,
                 **more: Any) -> list[dict[str, Any]]:
        """Segments of a conversation, which together are what the template writes. Answers before
        message number first_trained are not trained on. more: other names of the template, such as
        tools."""
        if not messages:
            return []
        text, spans = self._split(self._write(messages, False, more))
        ends = self._ends(text, messages, more)
        if not spans:
            spans = self._answers(text, messages, ends, more)
        kept = first_trained and ends[first_trained - 1]
        if first_trained and kept is None:
            raise TemplateError("it is not known where the prompt ends in what the template writes")
        spans = [(max(a, kept or 0), b) for a, b in spans if b > (kept or 0)]
        return self._cut(text, messages, ends, spans)

    def _answers(self, text: str, messages: Messages, ends: list[int | None],
                 more: dict[str, Any]) -> list[Span]:
        spans = []
        for n, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            end = ends[n]
            if end is None:
                raise TemplateError(
                    "the template has no {% generation %} spans, and does not write messages one "
                    "after the other; put the spans into it"
                )
            spans.append((self._prompt_end(text, messages[:n], more), end))
        return spans

    @staticmethod
    def _cut(text: str, messages: Messages, ends: list[int | None],
             spans: list[Span]) -> list[dict[str, Any]]:
        known = (e for e in ends if e is not None)
        places = sorted({0, len(text), *known, *(p for s in spans for p in s)})
        out = []
        for begin, end in zip(places, places[1:]):
            number = next(i for i, e in enumerate(ends) if e is not None and e >= end)
            trained = any(a <= begin and end <= b for a, b in spans)
            role = messages[number].get("role")
            role = "assistant" if trained else role if role in KNOWN_ROLES else "user"
            out.append({"role": role, "text": text[begin:end], "trained": trained})
        return out


# ---- a folder ----


def _token(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


def open_folder(folder: str | os.PathLike[str]) -> Renderer:
    """The renderer for the chat template of a tokenizer's folder."""
    folder = pathlib.Path(folder)
    config, jinja = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    known = json.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    template = known.get("chat_template")
    if isinstance(template, list):
        template = next((t["template"] for t in template if t.get("name") == "default"), None)
    if jinja.exists():
        template = jinja.read_text(encoding="utf-8")
    if not isinstance(template, str):
        raise TemplateError(f"{folder}: has no chat template")
    tokens = {k: _token(v) for k, v in known.items() if k.endswith("_token") and _token(v)}
    return Renderer(template, tokens, jinja if jinja.exists() else config)


# ---- conversations ----


def _turns(value: list[Any]) -> Messages:
    out = []
    for turn in value:
        if not isinstance(turn, dict):
            raise TemplateError(f"a message is {turn!r:.60}, not an object with role and content")
        turn = dict(turn)
        if "role" not in turn and "from" in turn:
            turn = {"role": turn["from"], "content": turn.get("value")}
        turn["role"] = ROLES.get(turn.get("role", ""), turn.get("role"))
        out.append(turn)
    return out


def conversation_of(item: dict[str, Any]) -> tuple[Messages, int] | None:
    """(messages, number of the first one that may be trained on) of an object; None: it has no
    conversation."""
    if isinstance(item.get("messages"), list):
        return _turns(item["messages"]), 0
    if isinstance(item.get("conversations"), list):
        turns = _turns(item["conversations"])
        if item.get("system"):
            turns.insert(0, {"role": "system", "content": item["system"]})
        return turns, 0
    if isinstance(item.get("prompt"), list) and isinstance(item.get("completion"), list):
        prompt = _turns(item["prompt"])
        return prompt + _turns(item["completion"]), len(prompt)
    if isinstance(item.get("instruction"), str) and isinstance(item.get("output"), str):
        asked = "\n".join(t for t in (item["instruction"], item.get("input")) if t)
        said = [("system", item.get("system")), ("user", asked), ("assistant", item["output"])]
        return [{"role": r, "content": c} for r, c in said if c or r != "system"], 0
    return None


def _items(path: str | os.PathLike[str]) -> Iterator[tuple[int, Any]]:
    """(line, object) of a file."""
    text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("["):
        for item in json.loads(text):
            yield 1, item
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                item = json.loads(line)
            except ValueError as error:
                raise TemplateError(f"{path}:{number}: {error}") from error
            yield number, item


def _serve(folder: str | os.PathLike[str], pipe: Any) -> None:
    """The process that renders: its memory is limited, and it may be killed."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as statm:
        used = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, used + MOST_MEMORY))
    try:
        renderer = open_folder(folder)
        pipe.send((True, None))
    except (TemplateError, OSError, ValueError) as error:
        pipe.send((False, str(error)))
        return
    while True:
        messages, first, more = pipe.recv()
        try:
            answer: tuple[bool, Any] = True, renderer.segments(messages, first, **more)
        except TemplateError as error:
            answer = False, str(error)
        except MemoryError:
            answer = False, f"the template needs more than {MOST_MEMORY >> 30} GiB"
        pipe.send(answer)


class Worker:
    """A process that renders with a folder's template, with limits."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(folder, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._receive()

    def _receive(self) -> Any:
        try:
            if not self._pipe.poll(MOST_SECONDS):
                self._process.kill()
                raise TemplateError(f"the template takes more than {MOST_SECONDS} s")
            good, answer = self._pipe.recv()
        except EOFError as error:
            raise TemplateError("the template ended its process") from error
        if not good:
            raise TemplateError(answer)
        return answer

    def segments(self, messages: Messages, first_trained: int = 0,
                 **more: Any) -> list[dict[str, Any]]:
        """As Renderer.segments."""
        self._pipe.send((messages, first_trained, more))
        return list(self._receive())

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def render_file(source: str | os.PathLike[str], out: str | os.PathLike[str],
                folder: str | os.PathLike[str]) -> int:
    """Renders a file of conversations; other objects are copied. Returns how many were rendered.
    Errors name file and line; then no file `out` is left."""
    worker = Worker(folder)
    rendered = 0
    unfinished = pathlib.Path(f"{out}.tmp")
    try:
        unfinished.unlink(missing_ok=True)
        with open(unfinished, "x", encoding="utf-8") as file:  # through no link of a stranger
            for line, item in _items(source):
                try:
                    found = conversation_of(item) if isinstance(item, dict) else None
                    if found:
                        more = {k: item[k] for k in ("tools", "documents") if k in item}
                        item = {"segments": worker.segments(*found, **more)}
                        rendered += 1
                except TemplateError as error:
                    raise TemplateError(f"{source}:{line}: {error}") from error
                file.write(json.dumps(item, ensure_ascii=False) + "\n")
        unfinished.rename(out)
    finally:
        worker.close()
        unfinished.unlink(missing_ok=True)
    return rendered


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m echelon.chats",
        description="Renders conversations with the chat template of a tokenizer's folder.",
    )
    parser.add_argument("source", metavar="IN", help="lines of JSON, or an array")
    parser.add_argument("out", metavar="OUT", help="lines of JSON for `echelon data`")
    parser.add_argument("--tokenizer", required=True, metavar="FOLDER", help="its chat template")
    given = parser.parse_args()
    try:
        import jinja2  # noqa: F401
    except ImportError:
        sys.exit("echelon.chats: needs the Python package jinja2: "
                 "pip install 'echelon-train[chats]', or pip install jinja2")
    try:
        rendered = render_file(given.source, given.out, given.tokenizer)
    except (TemplateError, OSError, ValueError) as error:
        sys.exit(f"echelon.chats: {error}")
    print(f"{given.out}: {rendered} conversations; next: echelon data {given.out} TOKENS "
          f"--tokenizer {given.tokenizer}")


if __name__ == "__main__":
    main()
