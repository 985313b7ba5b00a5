# SPDX-License-Identifier: Apache-2.0
"""Keys of run files. The types are in _keys.pyi, which tools/make_stubs.py writes."""
import ctypes
import numbers
import os
import re
from typing import Any, Dict

from . import _library
from ._library import Handle, UsageError, check, library

Keys = Dict[str, Any]
Name = str


def keys():
    """All keys of run files, as a dict from "section.key" to a dict of type, fallback (the
    default), help, more and choices (words, separated by blanks)."""
    found, key = {}, _library.Key()
    while library.echelon_key_at(len(found), ctypes.byref(key)) == 0:
        texts = {name: getattr(key, name).decode() for name, _ in key._fields_[1:]}
        found[f"{texts.pop('section')}.{texts.pop('name')}"] = texts
    return found


_WITH_PATHS = ("data.train", "data.valid", "training.plugins")  # several in a value


def escaped(path):
    """A path as a word of a text of several paths."""
    return re.sub(r"([ \t\n\\'\"])", r"\\\1", os.fspath(path))


def _text(key, value):
    """A key's value as a run file has it."""
    if isinstance(value, os.PathLike):
        value = escaped(value) if key in _WITH_PATHS else os.fspath(value)
    if isinstance(value, str):
        if "\0" in value:
            raise UsageError(f"{key}: {value!r} contains NUL, which no value may")
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, numbers.Real):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(key, item) for item in value) + "]"
    raise UsageError(f"{key}: {value!r} has the type {type(value).__name__}; set a str, number, "
                     "bool, path, or a list of numbers")


def _name(key):
    if not isinstance(key, str) or "\0" in key:
        raise UsageError(f"{key!r} is no key: keys are texts like \"training.steps\"")
    return key.encode()


class Keyed(Handle):
    """The keys of a run file: run["training.steps"] = 2000. A context manager that closes it."""

    _is = "run"

    def _set(self, key, value):
        name = _name(key)
        text = _text(key, value).encode()
        with self._use() as handle:
            check(library.echelon_run_set(handle, name, text))

    def __setitem__(self, key, value):
        """Sets a key in place of the run file."""
        self._set(key, value)

    def __getitem__(self, key):
        """The key's value as text: as set, from the run file, from the model folder, or the
        default."""
        name, value = _name(key), ctypes.c_char_p()
        with self._use() as handle:
            check(library.echelon_run_get(handle, name, ctypes.byref(value)))
            return value.value.decode()

    def __contains__(self, key):
        """True if the key was set: here, by the run file, or by a key that implies it."""
        name, is_set = _name(key), ctypes.c_bool()
        with self._use() as handle:
            check(library.echelon_run_is_set(handle, name, ctypes.byref(is_set)))
        return is_set.value

    def close(self):
        """Frees the run. Its plans and trainings stay valid."""
        if self._handle:
            with self._use() as handle:
                self._handle = ctypes.c_void_p()
                library.echelon_run_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            library.echelon_run_close(self._handle)
