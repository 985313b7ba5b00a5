# SPDX-License-Identifier: Apache-2.0
"""include/echelon.h for Python: structs, functions, and statuses as exceptions."""
from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["Error", "UsageError", "Handle", "library", "check"]


class Error(RuntimeError):
    """A call of the library failed; the text is the one that the program prints."""


class UsageError(Error, ValueError):
    """A key, an argument or a call is wrong."""


class InputError(Error):
    """A file's content is wrong or damaged."""


class IoError(Error, OSError):
    """The operating system refused a read, write or rename."""


class OutOfMemoryError(Error, MemoryError):
    """Not enough memory."""


class UnsupportedError(Error):
    """Not available with these values or on this machine."""


class CommunicationError(Error, ConnectionError):
    """A peer is lost, a deadline passed, or another rank failed first."""


class NumericError(Error, ArithmeticError):
    """A NaN or infinity with which training cannot continue."""


class InternalError(Error):
    """An invariant of the library is broken."""


_ERRORS = {-1: UsageError, -2: InputError, -3: IoError, -4: OutOfMemoryError, -5: UnsupportedError,
           -6: CommunicationError, -7: CommunicationError, -8: NumericError, -9: InternalError}


class _Sized(ctypes.Structure):
    """A struct whose first field is its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **fields)


class PlanOptions(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("ranks", ctypes.c_int), ("per_machine", ctypes.c_int),
                ("steps", ctypes.c_bool), ("simulate", ctypes.c_bool),
                ("cluster", ctypes.c_char_p), ("tokens", ctypes.c_double),
                ("progress", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class TrainOptions(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("ranks", ctypes.c_int), ("profile", ctypes.c_bool),
                ("catch_signals", ctypes.c_bool), ("elapsed", ctypes.c_double),
                ("gradients", ctypes.c_bool)]


class Metrics(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("step", ctypes.c_int64), ("loss", ctypes.c_double),
                ("grad_norm", ctypes.c_double), ("learning_rate", ctypes.c_double),
                ("tokens", ctypes.c_int64), ("seconds", ctypes.c_double),
                ("withheld", ctypes.c_int), ("saved", ctypes.c_int),
                ("valid_loss", ctypes.c_double), ("requests", ctypes.c_int),
                ("unit", ctypes.c_char_p)]


HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Metrics), ctypes.c_void_p)


class TrainHooks(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("context", ctypes.c_void_p), *(
        (name, HOOK) for name in ("begin", "step_end", "validated", "saved", "end"))]


class Tensor(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("state", ctypes.c_char_p),
                ("dtype", ctypes.c_char_p), ("dims", ctypes.c_int), ("shape", ctypes.c_int64 * 8),
                ("bytes", ctypes.c_int64)]


class Key(_Sized):
    _fields_ = [("size", ctypes.c_size_t), *((name, ctypes.c_char_p) for name in (
        "section", "name", "type", "fallback", "help", "more", "choices"))]


class VerifyOptions(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("ranks", ctypes.c_int), ("steps", ctypes.c_int64),
                ("tolerance", ctypes.c_double), ("own_precision", ctypes.c_bool)]


class Comparison(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("precision", ctypes.c_char_p),
                ("layout", ctypes.c_char_p), ("ranks", ctypes.c_int), ("passed", ctypes.c_int),
                ("ill_conditioned", ctypes.c_int), ("tolerance", ctypes.c_double),
                ("unit", ctypes.c_double), ("worst", ctypes.c_double),
                ("worst_at", ctypes.c_char_p), ("first_bad", ctypes.c_char_p),
                ("steps", ctypes.c_int64), ("compared", ctypes.c_int64), *(
                    (name, ctypes.c_double) for name in (
                        "loss", "gradients", "weights", "states", "reports", "validation"))]


class EvaluateOptions(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("split", ctypes.c_char_p),
                ("tokenizer", ctypes.c_char_p), ("device", ctypes.c_char_p),
                ("logits", ctypes.c_char_p), ("samples", ctypes.c_int64),
                ("batch", ctypes.c_int64), ("progress", ctypes.c_void_p),
                ("context", ctypes.c_void_p), ("plugins", ctypes.c_char_p),
                ("parallel", ctypes.c_char_p)]


class Evaluation(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("loss", ctypes.c_double),
                ("bits_per_byte", ctypes.c_double), ("targets", ctypes.c_int64),
                ("samples", ctypes.c_int64), ("features", ctypes.c_int),
                ("accuracy", ctypes.c_double), ("accuracy_of_5", ctypes.c_double)]


class ScoredText(_Sized):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_char_p) for name in (
        "context", "text", "name")]


class ScoreOptions(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("tokenizer", ctypes.c_char_p),
                ("device", ctypes.c_char_p), ("parallel", ctypes.c_char_p),
                ("plugins", ctypes.c_char_p), ("begin_of_text", ctypes.c_int),
                ("truncate", ctypes.c_bool), ("greedy", ctypes.c_bool),
                ("progress", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class Likelihood(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("index", ctypes.c_int64),
                ("log_likelihood", ctypes.c_double), ("tokens", ctypes.c_int64),
                ("greedy", ctypes.c_int)]


class SampleOptions(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("ids", ctypes.c_char_p),
                ("tokenizer", ctypes.c_char_p), ("device", ctypes.c_char_p),
                ("tokens", ctypes.c_int64), ("seed", ctypes.c_int64),
                ("temperature", ctypes.c_double), ("top_k", ctypes.c_int64),
                ("top_p", ctypes.c_double), ("begin_of_text", ctypes.c_int),
                ("special_tokens", ctypes.c_bool), ("plugins", ctypes.c_char_p)]


class Token(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("id", ctypes.c_int32), ("is_prompt", ctypes.c_int),
                ("bytes", ctypes.c_void_p), ("n", ctypes.c_size_t)]


class Checkpoint(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("path", ctypes.c_char_p), ("step", ctypes.c_int64),
                ("complete", ctypes.c_int), ("problem", ctypes.c_char_p),
                ("bytes", ctypes.c_int64), ("ranks", ctypes.c_int), ("loss", ctypes.c_double)]


TAKE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(Token), ctypes.c_void_p)
TAKE_LIKELIHOOD = ctypes.CFUNCTYPE(None, ctypes.POINTER(Likelihood), ctypes.c_void_p)
LOG = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)

_HANDLE, _TEXT = ctypes.c_void_p, ctypes.c_char_p
_FUNCTIONS = {  # name: result, arguments
    "version": (_TEXT, []),
    "last_error": (_TEXT, []),
    "set_log": (None, [LOG, _HANDLE]),
    "run_open": (ctypes.c_int, [_TEXT, ctypes.POINTER(_HANDLE)]),
    "run_open_text": (ctypes.c_int, [_TEXT, _TEXT, ctypes.POINTER(_HANDLE)]),
    "run_close": (None, [_HANDLE]),
    "run_set": (ctypes.c_int, [_HANDLE, _TEXT, _TEXT]),
    "run_get": (ctypes.c_int, [_HANDLE, _TEXT, ctypes.POINTER(_TEXT)]),
    "run_is_set": (ctypes.c_int, [_HANDLE, _TEXT, ctypes.POINTER(ctypes.c_bool)]),
    "key_at": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(Key)]),
    "plan_create": (ctypes.c_int, [_HANDLE, ctypes.POINTER(PlanOptions), ctypes.POINTER(_HANDLE)]),
    "plan_free": (None, [_HANDLE]),
    "plan_text": (_TEXT, [_HANDLE]),
    "plan_json": (_TEXT, [_HANDLE]),
    "plan_svg": (_TEXT, [_HANDLE]),
    "plan_html": (_TEXT, [_HANDLE]),
    "plan_ranks": (ctypes.c_int, [_HANDLE]),
    "memory_kinds": (ctypes.c_int, []),
    "memory_kind": (_TEXT, [ctypes.c_int]),
    "plan_bytes": (ctypes.c_int64, [_HANDLE, ctypes.c_int, ctypes.c_int]),
    "train_start": (ctypes.c_int, [_HANDLE, ctypes.POINTER(TrainOptions),
                                   ctypes.POINTER(_HANDLE)]),
    "train": (ctypes.c_int, [_HANDLE, ctypes.POINTER(TrainOptions), ctypes.POINTER(TrainHooks)]),
    "train_step": (ctypes.c_int, [_HANDLE, ctypes.POINTER(Metrics)]),
    "train_is_done": (ctypes.c_bool, [_HANDLE]),
    "train_is_stopped": (ctypes.c_bool, [_HANDLE]),
    "train_steps": (ctypes.c_int64, [_HANDLE]),
    "train_last_step": (ctypes.c_int64, [_HANDLE]),
    "train_save": (ctypes.c_int, [_HANDLE]),
    "train_validate": (ctypes.c_int, [_HANDLE, ctypes.POINTER(ctypes.c_double)]),
    "train_set": (ctypes.c_int, [_HANDLE, _TEXT, ctypes.c_double]),
    "train_finish": (ctypes.c_int, [_HANDLE]),
    "train_abort": (None, [_HANDLE]),
    "verify": (ctypes.c_int, [_HANDLE, ctypes.POINTER(VerifyOptions), ctypes.POINTER(_HANDLE)]),
    "verification_free": (None, [_HANDLE]),
    "verification_count": (ctypes.c_int, [_HANDLE]),
    "verification_at": (ctypes.c_int, [_HANDLE, ctypes.c_int, ctypes.POINTER(Comparison)]),
    "verification_text": (_TEXT, [_HANDLE]),
    "evaluate": (ctypes.c_int, [_TEXT, _TEXT, ctypes.POINTER(EvaluateOptions),
                                ctypes.POINTER(Evaluation)]),
    "score": (ctypes.c_int, [_TEXT, ctypes.POINTER(ScoredText), ctypes.c_int64,
                             ctypes.POINTER(ScoreOptions), TAKE_LIKELIHOOD, _HANDLE]),
    "sample": (ctypes.c_int, [_TEXT, _TEXT, ctypes.POINTER(SampleOptions), TAKE, _HANDLE]),
    "checkpoints_list": (ctypes.c_int, [_TEXT, ctypes.POINTER(_HANDLE)]),
    "checkpoints_free": (None, [_HANDLE]),
    "checkpoints_count": (ctypes.c_int, [_HANDLE]),
    "checkpoints_at": (ctypes.c_int, [_HANDLE, ctypes.c_int, ctypes.POINTER(Checkpoint)]),
    "tensor_count": (ctypes.c_int, [_HANDLE]),
    "tensor_at": (ctypes.c_int, [_HANDLE, ctypes.c_int, ctypes.POINTER(Tensor)]),
    "tensor_read": (ctypes.c_int, [_HANDLE, ctypes.c_int, _HANDLE, ctypes.c_size_t]),
    "tensor_write": (ctypes.c_int, [_HANDLE, ctypes.c_int, _HANDLE, ctypes.c_size_t]),
}


def _open() -> ctypes.CDLL:
    """The library that ECHELON_LIBRARY names, or else the one that was installed with this
    package."""
    folder = pathlib.Path(__file__).parent / "lib"
    path = os.environ.get("ECHELON_LIBRARY") or str(folder / "libechelon.so")
    try:
        opened = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{path}: cannot be loaded ({error}); install the package with `pip "
                          "install .`, or set ECHELON_LIBRARY to a built libechelon.so") from None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(opened, "echelon_" + name)
        function.restype, function.argtypes = result, arguments
    return opened


library = _open()


def check(status: int) -> None:
    """Raises the exception of a status that is not ECHELON_OK."""
    if status != 0:
        message = library.echelon_last_error().decode(errors="replace")
        raise _ERRORS.get(status, Error)(message or f"status {status}")


calling = threading.local()  # .log: this thread is calling the function of set_log


def is_in_log() -> bool:
    """True in the function of set_log, which may run on a rank's thread."""
    return getattr(calling, "log", False)


class Handle:
    """An object of the library, for one thread at a time."""

    _is = "object"

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()  # the library fills it; empty: closed
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def _use(self) -> Iterator[ctypes.c_void_p]:
        """The handle, for one call."""
        if is_in_log():
            raise UsageError(f"the function of set_log cannot use a {self._is}: the library waits "
                             "for it")
        if not self._lock.acquire(blocking=False):
            raise UsageError(f"another thread is using this {self._is}; wait for its call")
        try:
            if not self._handle:
                raise UsageError(f"this {self._is} has ended")
            yield self._handle
        finally:
            self._lock.release()
