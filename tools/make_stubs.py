#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes python/echelon/_keys.pyi, the types of all keys of run files, from the library's table.

    tools/make_stubs.py LIBRARY            writes the file
    tools/make_stubs.py LIBRARY --check    fails if the file is stale
"""
import os
import pathlib
import sys
import textwrap

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "python"
STUB = PACKAGE / "echelon" / "_keys.pyi"
# Mapping files and plugins add names to these keys.
OPEN = ("model.architecture", "optimizer.name", "optimizer.schedule")
PATH = "str | os.PathLike[str]"
TYPES = {"INT": "int", "SIZE": "int | str", "REAL": "float", "TIME": "float | str",
         "BOOL": "bool", "TEXT": "str", "PATH": PATH, "PATHS": PATH, "LIST": "Sequence[int]"}
TEXTS = ("type", "fallback", "help", "more", "choices")

HEAD = '''\
# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_stubs.py; the keys are those of src/config/keys.def.
import os
from collections.abc import Sequence
from typing import Literal, TypedDict, overload

from typing_extensions import Self

from ._library import Handle

class Key(TypedDict):
{fields}

def keys() -> dict[str, Key]: ...
def escaped(path: str | os.PathLike[str]) -> str: ...

# A key of a run file.
Name = Literal[
{names}
]

# Keys and the types of their values.
Keys = TypedDict("Keys", {{
{keys}
}}, total=False)

class Keyed(Handle):
    def _set(self, key: str, value: object) -> None: ...
{setters}
    def __getitem__(self, key: Name) -> str: ...
    def __contains__(self, key: Name) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...
    def __del__(self) -> None: ...
'''


def literal(words):
    return "Literal[" + ", ".join(f'"{word}"' for word in words) + "]"


def type_of(name, key):
    """The Python type of a key's value."""
    words = key["choices"].split() if key["type"] in ("INT", "NAME", "LIST") else []
    if key["fallback"] == "auto" and key["type"] in ("INT", "SIZE", "REAL", "BOOL"):
        words.append("auto")
    found = [TYPES[key["type"]]] if key["type"] != "NAME" else []
    if {"true", "false"} <= set(words):
        found.append("bool")
    if name in OPEN:
        found.append("str")
    if words and "str" not in TYPES.get(key["type"], ""):
        found.append(literal(words))
    return " | ".join(found)


def wrap(text, indent):
    return textwrap.fill(text, 100, initial_indent=indent, subsequent_indent=indent,
                         break_on_hyphens=False, break_long_words=False)


def stub(keys):
    by_type, entries = {}, []
    for name, key in keys.items():
        value = type_of(name, key)
        by_type.setdefault(value, []).append(name)
        entries.append(wrap(f"# {key['help']}", "    # ").replace("# # ", "# "))
        entries.append(wrap(f'"{name}": {value},', "    ").replace("\n    ", "\n        "))
    setters = []
    for value, names in by_type.items():
        words = wrap(literal(names), " " * 8)
        setters.append("    @overload\n    def __setitem__(\n        self,\n"
                       f"        key:\n{words},\n"
                       f"        value:\n{wrap(value, ' ' * 8)}) -> None: ...")
    return HEAD.format(fields="\n".join(f"    {text}: str" for text in TEXTS),
                       names=wrap(", ".join(f'"{name}"' for name in keys), "    "),
                       keys="\n".join(entries), setters="\n".join(setters))


def main():
    os.environ["ECHELON_LIBRARY"] = os.path.abspath(sys.argv[1])
    sys.path.insert(0, str(PACKAGE))
    import echelon
    text = stub(echelon.keys())
    if "--check" not in sys.argv:
        STUB.write_text(text)
    elif not STUB.exists() or STUB.read_text() != text:
        sys.exit(f"{STUB} is stale; run tools/make_stubs.py LIBRARY")


if __name__ == "__main__":
    main()
