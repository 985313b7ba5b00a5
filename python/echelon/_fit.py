# SPDX-License-Identifier: Apache-2.0
"""The hooks of Run.fit: they call callbacks, and return what these request."""
from __future__ import annotations

import contextlib
import ctypes
import math
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from . import _library
from ._library import check, library

if TYPE_CHECKING:
    from .callbacks import _All
    from .run import History, Metrics, Run, Training

_STOP, _FAILED = 1, -10  # ECHELON_STOP; a number that is no status


def metrics_of(struct: _library.Metrics) -> Metrics:
    """The metrics of a training step as a dict, without what was not measured. The units trained on
    are named: tokens or samples."""
    found: Any = {f"{struct.unit.decode()}s" if name == "tokens" else name: getattr(struct, name)
                  for name, *_ in struct._fields_[1:] if name not in ("requests", "unit")}
    found["withheld"], found["saved"] = bool(found["withheld"]), bool(found["saved"])
    if math.isnan(found["valid_loss"]):
        del found["valid_loss"]
    return found


class Signals:
    """Python's signal handlers while the library trains. They may raise, which only a hook can
    pass on: a signal that arrives between two hooks waits for the next one."""

    def __init__(self) -> None:
        self.inside = False  # in a hook, whose exceptions are caught
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._waiting: list[int] = []

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.inside:
            self._handlers[number](number, frame)
        else:
            self._waiting.append(number)

    def deliver(self) -> None:
        """Calls the handlers of signals that have arrived."""
        while self._waiting:
            number = self._waiting.pop(0)
            self._handlers[number](number, None)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Only the main thread of a process has handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._receive)
        try:
            yield
        finally:
            for caught, handler in self._handlers.items():
                if signal.getsignal(caught) == self._receive:
                    signal.signal(caught, handler)
        self.deliver()


class Fit:
    """A training of which callbacks are the hooks."""

    def __init__(self, run: Run, callbacks: _All, history: History) -> None:
        self.run, self.callbacks, self.history = run, callbacks, history
        self.training: Training | None = None
        self.stopped = False  # before the last step, and by no callback
        self._interrupted = False
        self._error: BaseException | None = None  # that a callback raised
        self._signals = Signals()

    def _begin(self, training: Training, metrics: _library.Metrics) -> None:
        self.callbacks.begin(training)

    def _step_end(self, training: Training, metrics: _library.Metrics) -> None:
        found = metrics_of(metrics)
        self.history.add(found)
        self.callbacks.step(found)

    def _validated(self, training: Training, metrics: _library.Metrics) -> None:
        self.callbacks.validated(metrics.step, metrics.valid_loss)

    def _saved(self, training: Training, metrics: _library.Metrics) -> None:
        self.callbacks.saved(metrics_of(metrics))

    def _end(self, training: Training, metrics: _library.Metrics) -> None:
        if metrics.requests & _STOP:  # of any process
            training.stop_training = True
        self.stopped = self._interrupted or (training.stopped and not training.stop_training)
        self.callbacks.end()

    def _is_alone(self) -> bool:
        """No other process waits for this one."""
        return self.training is not None and not self.training._ends_process

    def _hook(self, call: Callable[[Training, _library.Metrics], None]) -> Any:
        """A hook of the library. It keeps an exception, and returns requests."""
        def hook(handle: int, metrics: Any, _: Any) -> int:
            try:
                self._signals.inside = True
                training = self.training = self.training or self.run._training(handle)
                call(training, metrics[0])
                self._signals.deliver()  # only now: callbacks see each step that is made
                return _STOP if self._interrupted or training.stop_training else 0
            except BaseException as error:  # pylint: disable=broad-except
                if isinstance(error, KeyboardInterrupt) and self._is_alone():
                    self._interrupted = True
                    return _STOP
                self._error = error
                return _FAILED
            finally:
                self._signals.inside = False
        return _library.HOOK(hook)

    def train(self, ranks: int, gradients: bool) -> None:
        """Trains to the end. Raises what a callback has raised."""
        hooks = _library.TrainHooks(**{name: self._hook(getattr(self, f"_{name}")) for name in (
            "begin", "step_end", "validated", "saved", "end")})
        try:
            with self._signals.held(), self.run._use() as handle:
                options = _library.TrainOptions(ranks=ranks, gradients=gradients)
                status = library.echelon_train(handle, options, ctypes.byref(hooks))
                if self._error is not None:
                    raise self._error
                check(status)
        finally:
            if self.training is not None:
                self.training._handle = ctypes.c_void_p()  # the ranks have ended
            self._error = None  # its traceback refers to this object
