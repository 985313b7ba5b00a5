# SPDX-License-Identifier: Apache-2.0
"""Runs: keys, plans, training step by step, and fit."""
from __future__ import annotations

import contextlib
import ctypes
import html
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, overload

from . import _launch, _library
from ._fit import Fit, metrics_of
from ._keys import Keyed
from ._library import Handle, UsageError, check, library
from .callbacks import Callback, _All
from .strategies import Strategy
from .tensors import Tensors
from .trained import Verification, checkpoints, evaluate, sample

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._keys import Keys

# All callbacks that the library ever had: a thread may still be about to call one.
_logs: list[Any] = []


class Metrics(TypedDict, total=False):
    """The metrics of a training step."""

    step: int  # training steps done, of all starts
    loss: float  # mean over targets; NaN: no token counted as a target
    grad_norm: float  # before clipping
    learning_rate: float  # 0: the update was withheld
    tokens: int  # trained on so far, over all ranks; not of runs on images or features
    samples: int  # the same, only of runs on images or features
    seconds: float  # of this step
    withheld: bool  # a NaN or infinity; no update was made
    saved: bool  # a checkpoint of this step was begun
    valid_loss: float  # mean over the validation data; only where the run validated


def set_log(function: Callable[[str], object] | None) -> None:
    """Calls function(line) with each line that the program would print on standard error. Any
    thread of the library may call it, so it cannot use runs. None: the lines are dropped."""
    if function is not None and not callable(function):
        raise UsageError(f"set_log: {function!r} is no function")

    def call(line: bytes, _: Any) -> None:
        _library.calling.log = True
        try:
            if function:
                function(line.decode(errors="replace"))
        finally:
            _library.calling.log = False
    new = _library.LOG(call if function else 0)
    _logs.append(new)
    library.echelon_set_log(new, None)


class Plan(Handle):
    """A run's plan: print it, or show it in a notebook. Made by Run.plan."""

    _is = "plan"

    def __init__(self, run: Run, **options: Any) -> None:
        super().__init__()
        if options.get("cluster") is not None:
            options["cluster"] = os.fspath(options["cluster"]).encode()
        with run._use() as handle:
            check(library.echelon_plan_create(handle, _library.PlanOptions(**options),
                                              ctypes.byref(self._handle)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.echelon_plan_free(self._handle)

    def _get(self, function: Any) -> str:
        with self._use() as handle:
            text = function(handle)
            if text is None:
                raise UsageError(library.echelon_last_error().decode())
            return text.decode()

    def __str__(self) -> str:
        """The text that `echelon plan` prints."""
        return self._get(library.echelon_plan_text)

    def __repr__(self) -> str:
        return f"<plan of {self.ranks} ranks>"

    def json(self) -> dict[str, Any]:
        """The plan as `echelon plan --json` prints it, as a dict (docs/formats.md)."""
        return json.loads(self._get(library.echelon_plan_json))

    @property
    def svg(self) -> str:
        """The simulated timeline."""
        return self._get(library.echelon_plan_svg)

    def html(self) -> str:
        """The page of ``echelon plan --html``: a file for browsers, which loads nothing."""
        return self._get(library.echelon_plan_html)

    @property
    def ranks(self) -> int:
        """Number of ranks, without evaluators."""
        with self._use() as handle:
            return library.echelon_plan_ranks(handle)

    def bytes(self, rank: int = 0) -> dict[str, int]:
        """The rank's peak of each kind of memory, in bytes."""
        if not 0 <= rank < self.ranks:
            raise IndexError(f"rank {rank} of {self.ranks}")
        with self._use() as handle:
            return {library.echelon_memory_kind(kind).decode():
                    library.echelon_plan_bytes(handle, rank, kind)
                    for kind in range(library.echelon_memory_kinds())}

    def _repr_html_(self) -> str:
        return f"{self.svg}<pre>{html.escape(str(self))}</pre>"


class Training(Handle):
    """A training under way, step by step. Made by Run.train; a context manager that ends it.

    One thread uses it at a time. With several processes, each of them makes the same calls in the
    same order. A process that was forked from this one cannot use it.
    """

    _is = "training"

    def __init__(self, run: Run, ranks: int = 0, gradients: bool = False,
                 _hooked: int | None = None) -> None:
        super().__init__()
        self.run = run
        self.stop_training = False  # callbacks may set it: no further step
        self._in_fit = _hooked is not None  # which makes the steps and ends the training
        self._process = os.getpid()
        self._ends_process = run["parallel.comm"] != "local"
        if self._in_fit:
            self._handle = ctypes.c_void_p(_hooked)
            return
        with run._use() as handle:  # the library fills ours, also if an interrupt follows
            options = _library.TrainOptions(ranks=ranks, gradients=gradients)
            check(library.echelon_train_start(handle, options, ctypes.byref(self._handle)))

    def __enter__(self) -> Training:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        elif self._handle and self._ends_process:
            traceback.print_exception(kind, error, trace)  # the abort ends this process
            sys.stderr.flush()
            handle, self._handle = self._handle, ctypes.c_void_p()
            library.echelon_train_abort(handle)
        else:  # the error that is on its way says more
            with contextlib.suppress(_library.Error):
                self.finish()

    def __del__(self) -> None:
        # Not in a forked child, which has no ranks; nor on a rank's thread, which would wait for
        # itself.
        if getattr(self, "_process", None) != os.getpid() or _library.is_in_log() or self._in_fit:
            return
        with contextlib.suppress(Exception):
            self.finish()

    def _check_outside(self, what: str) -> None:
        if self._in_fit:
            raise UsageError(f"a callback cannot {what}: fit does; to stop, set stop_training")

    @property
    def done(self) -> bool:
        """True if all steps are done, or training was told to stop."""
        with self._use() as handle:
            return library.echelon_train_is_done(handle)

    @property
    def step_count(self) -> int:
        """Training steps done so far, of all starts."""
        with self._use() as handle:
            return library.echelon_train_steps(handle)

    @property
    def last_step(self) -> int:
        """The step with which the run ends: training.steps, or what training.epochs comes to."""
        with self._use() as handle:
            return library.echelon_train_last_step(handle)

    @property
    def stopped(self) -> bool:
        """True if a signal or training.time_limit ended training before its last step, with a
        checkpoint."""
        with self._use() as handle:
            return library.echelon_train_is_stopped(handle)

    def step(self) -> Metrics:
        """Makes a training step and what is due after it (validation, checkpoint). Returns its
        metrics as a dict: step, loss, grad_norm, learning_rate, tokens (so far; samples where these
        are images or features), seconds, withheld, saved, and valid_loss if it was measured.
        Strategies with spans of steps (asp, hogwild, pipedream) make a span."""
        self._check_outside("make a step")
        metrics = _library.Metrics()
        with self._use() as handle:
            check(library.echelon_train_step(handle, ctypes.byref(metrics)))
        return metrics_of(metrics)

    def save(self) -> None:
        """Saves a checkpoint now, and returns when it is complete."""
        with self._use() as handle:
            check(library.echelon_train_save(handle))

    def validate(self) -> float:
        """The mean loss over the validation data."""
        loss = ctypes.c_double()
        with self._use() as handle:
            check(library.echelon_train_validate(handle, ctypes.byref(loss)))
        return loss.value

    def set(self, key: str, value: float) -> None:
        """Sets optimizer.learning_rate or optimizer.clip_norm for the following steps."""
        with self._use() as handle:
            check(library.echelon_train_set(handle, key.encode(), value))

    @property
    def weights(self) -> Tensors:
        """Every parameter, in the type that training keeps it in."""
        return Tensors(self, "weights")

    @property
    def states(self) -> Tensors:
        """Every state of the optimizer."""
        return Tensors(self, "states")

    @property
    def gradients(self) -> Tensors:
        """The gradient of every parameter with which the last step has updated it: summed over all
        ranks and micro-batches, a mean over targets, before clipping and without the loss scale.
        Only if the training was started with gradients=True."""
        found = Tensors(self, "gradients")
        if not found:
            raise UsageError("this training keeps no gradients; start it with gradients=True")
        return found

    def finish(self) -> None:
        """Ends the ranks. Steps since the last checkpoint are lost if not all steps are done."""
        if self._handle:
            self._check_outside("end the training")
            with self._use() as handle:
                self._handle = ctypes.c_void_p()
                check(library.echelon_train_finish(handle))


class History:
    """The metrics of all steps. Made by Run.fit. history: a list for each metric, by name; step:
    the numbers of steps."""

    def __init__(self) -> None:
        self.step: list[int] = []
        self.history: dict[str, list[Any]] = {}

    def add(self, metrics: Metrics) -> None:
        """Adds the metrics of a step."""
        self.step.append(metrics["step"])
        for name, value in metrics.items():
            if name != "step":
                self.history.setdefault(name, []).append(value)


class Run(Keyed):
    """A run file and keys.

    file: a run file; or text: its text. model: a model folder (model.init_from). data: texts or a
    folder of `echelon data` (data.train). strategy: a Strategy. Further keywords are keys, as
    **{"training.steps": 1000}; echelon.keys() lists them, and echelon.Keys is their type.

    If neither the file nor a keyword sets parallel.comm, it follows from the launcher: mpi after
    mpirun and srun, ucx after torchrun, and otherwise local, where ranks are threads of this
    process.

        run = echelon.Run("run.yaml", strategy=echelon.Grid(tensor=2), **{"training.steps": 100})
        run["optimizer.learning_rate"] = 1e-3
    """

    if TYPE_CHECKING:
        @overload
        def __init__(self, file: str | os.PathLike[str] | None = None, *, text: str | None = None,
                     model: str | os.PathLike[str] | None = None,
                     data: str | os.PathLike[str] | None = None, strategy: Strategy | None = None,
                     **settings: Unpack[Keys]) -> None: ...

        @overload  # **{"training.steps": 1000}, of which checkers know no keys
        def __init__(self, file: str | os.PathLike[str] | None = None, /,
                     **settings: Any) -> None: ...

    def __init__(  # type: ignore[misc]
            self, file: str | os.PathLike[str] | None = None, *, text: str | None = None,
            model: str | os.PathLike[str] | None = None,
            data: str | os.PathLike[str] | None = None, strategy: Strategy | None = None,
            **settings: Any) -> None:
        super().__init__()
        if file is not None and text is not None:
            raise UsageError("give file or text, not both")
        if strategy is not None and not isinstance(strategy, Strategy):
            raise UsageError(f"strategy: {strategy!r} is no strategy; make one, as Mirrored(2)")
        if file is not None:
            check(library.echelon_run_open(os.fsencode(file), ctypes.byref(self._handle)))
        else:
            if not isinstance(text, (str, type(None))):
                raise UsageError(f"text: a str is wanted, not a {type(text).__name__}")
            check(library.echelon_run_open_text((text or "").encode(), b"the run",
                                                ctypes.byref(self._handle)))
        chosen: dict[str, Any] = {f"parallel.{key}": value for key, value in
                                  (strategy.keys if strategy else {}).items()}
        if model is not None:
            chosen["model.init_from"] = model
        if data is not None:
            chosen["data.train"] = data
        for key, value in {**chosen, **settings}.items():
            self._set(key, value)
        if "parallel.comm" not in self:
            self._set("parallel.comm", _launch.comm())

    def plan(self, *, ranks: int = 0, per_machine: int = 0,
             cluster: str | os.PathLike[str] | None = None, tokens: float = 0.0,
             steps: bool = False, simulate: bool = False) -> Plan:
        """Plans the run on all ranks, as `echelon plan` does with these options. Nothing is
        allocated or read. ranks, per_machine: in total, and on a machine (0: as the keys say).
        cluster: a cluster file. With it, tokens is the number of tokens (of images: samples) in the
        whole training. steps: list every step. simulate: with the simulation's results."""
        return Plan(self, ranks=ranks, per_machine=per_machine, cluster=cluster, tokens=tokens,
                    steps=steps, simulate=simulate)

    def verify(self, *, ranks: int = 0, steps: int = 0, tolerance: float = 0.0,
               own_precision: bool = False) -> Verification:
        """Compares a few training steps of this layout with one rank, as `echelon verify` does.
        steps: 0 means 2. tolerance: the largest error in fp64 that passes (0: 1e-11, or ten units).
        own_precision: compares in the run's own precision, too."""
        return Verification(self, ranks=ranks, steps=steps, tolerance=tolerance,
                            own_precision=own_precision)

    def _trained(self) -> str:
        folder = self["checkpoint.directory"]
        return self["log.directory"] if folder == "auto" else folder

    def evaluate(self, data: str | os.PathLike[str] | None = None,
                 **options: Any) -> dict[str, Any]:
        """The loss of the newest checkpoint on data (data.valid, unless given). Options are those
        of echelon.evaluate."""
        data = self["data.valid"] if data is None else data
        if not data:
            raise UsageError("evaluate: name data; the run has no data.valid")
        return evaluate(self._trained(), data, **options)

    def sample(self, prompt: str = "", **options: Any) -> str | list[int]:
        """Text that the newest checkpoint writes after the prompt. Options are those of
        echelon.sample."""
        return sample(self._trained(), prompt, **options)

    def checkpoints(self) -> list[dict[str, Any]]:
        """The run's checkpoints, newest first, as echelon.checkpoints returns them."""
        return checkpoints(self._trained())

    def train(self, *, ranks: int = 0, gradients: bool = False) -> Training:
        """Starts training, to be driven step by step. ranks: threads, with parallel.comm=local
        (0: as many as the parallel section says). gradients: keep those of the last step, for
        Training.gradients; strategies that have no sum of all gradients are refused.

            with run.train() as training:
                while not training.done:
                    print(training.step()["loss"])
        """
        return Training(self, ranks, gradients)

    def _training(self, hooked: int) -> Training:
        return Training(self, _hooked=hooked)

    def fit(self, callbacks: Iterable[Callback] = (), *, ranks: int = 0,
            gradients: bool = False) -> History:
        """Trains until all steps are done, or a callback sets training.stop_training; with several
        processes it is enough if one of them does. A callback that raises ends all ranks, and fit
        raises its exception; in other processes it raises a CommunicationError. Ctrl-C finishes
        the step, saves and returns; with several processes it ends all of them. Strategies whose
        replicas differ first go on to their next average. Strategies with spans of steps (asp,
        hogwild, pipedream) call back once for each span. ranks, gradients: as in
        train."""
        history, all_of = History(), _All(callbacks)
        all_of.before(self)
        fit = Fit(self, all_of, history)
        fit.train(ranks, gradients)
        if not fit.stopped:
            all_of.after(self)
        return history
