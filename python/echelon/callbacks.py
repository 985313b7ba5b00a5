# SPDX-License-Identifier: Apache-2.0
"""Callbacks of Run.fit, named as in Keras; a batch of Keras is a training step here. They run in
the thread that called fit, between steps, and may make any call of Training but step and finish.
They are hooks of the library (include/echelon.h)."""
from __future__ import annotations

import contextlib
import csv
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ._launch import is_first
from ._library import UsageError

if TYPE_CHECKING:
    from .run import Metrics, Run, Training


class Callback:
    """Override what you need. self.training is set before on_train_begin."""

    training: Training  # of the fit that the callback is used in

    def on_run(self, run: Run) -> None:
        """Before training starts; may set keys of the run."""

    def on_train_begin(self, logs: Metrics) -> None:
        """Weights are there; logs: step."""

    def on_train_batch_end(self, step: int, logs: Metrics) -> None:
        """After each step; logs: its metrics (Training.step)."""

    def on_test_end(self, step: int, logs: Metrics) -> None:
        """After a validation; logs: valid_loss."""

    def on_save(self, step: int, logs: Metrics) -> None:
        """A checkpoint of this step was begun."""

    def on_train_end(self, logs: Metrics) -> None:
        """After the last step, before the ranks end; logs: its metrics."""

    def on_success(self, run: Run) -> None:
        """After the ranks have ended without an error, all steps done or a callback's stop."""


class _All:
    """The callbacks of a fit, in order."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks: list[Callback] = list(callbacks)
        self.logs: Metrics = {}
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise UsageError(f"{callback!r} is no Callback; make an object of a class that "
                                 "inherits from echelon.Callback")
            if getattr(callback, "training", None) and callback.training._handle:
                raise UsageError(f"{type(callback).__name__}: another fit, which has not ended, "
                                 "uses this callback; make one for each fit")

    def before(self, run: Run) -> None:
        for callback in self.callbacks:
            callback.on_run(run)

    def begin(self, training: Training) -> None:
        self.logs = {"step": training.step_count}
        for callback in self.callbacks:
            callback.training = training
        for callback in self.callbacks:
            callback.on_train_begin(self.logs.copy())

    def step(self, metrics: Metrics) -> None:
        self.logs = metrics
        for callback in self.callbacks:
            callback.on_train_batch_end(metrics["step"], metrics.copy())

    def validated(self, step: int, loss: float) -> None:
        for callback in self.callbacks:
            callback.on_test_end(step, {"valid_loss": loss})

    def saved(self, metrics: Metrics) -> None:
        for callback in self.callbacks:
            callback.on_save(metrics["step"], metrics.copy())

    def end(self) -> None:
        for callback in self.callbacks:
            callback.on_train_end(self.logs.copy())

    def after(self, run: Run) -> None:
        for callback in self.callbacks:
            callback.on_success(run)


class LambdaCallback(Callback):
    """Calls functions: LambdaCallback(on_train_batch_end=lambda step, logs: print(logs))."""

    def __init__(self, **functions: Callable[..., object]) -> None:
        for name, function in functions.items():
            if not name.startswith("on_") or not hasattr(Callback, name):
                raise TypeError(f"{name}: callbacks have on_run, on_train_begin, "
                                "on_train_batch_end, on_test_end, on_save, on_train_end and "
                                "on_success")
            setattr(self, name, function)


def _move(path: str, target: str) -> None:
    """Puts a folder in the place of another one. At each moment path or target is complete."""
    new, old = f"{target}.tmp", f"{target}.old"
    shutil.rmtree(old, ignore_errors=True)
    if os.stat(path).st_dev != os.stat(os.path.dirname(target)).st_dev:
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(path, new, symlinks=True)
    else:
        new = path
    if os.path.lexists(target):
        os.rename(target, old)
    os.rename(new, target)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)


class BackupAndRestore(Callback):
    """Keeps checkpoints in `folder`, from which the same fit goes on after it was killed. When
    training has succeeded, the last one (with BestCheckpoint each that is left) moves to where the
    run's checkpoints belong, in place of an earlier one of the same step. The others are removed,
    with the folder if nothing else is in it. A further fit of the same run goes on from the last
    one; a new run starts anew, as in Keras. save_freq: steps between checkpoints."""

    _CHECKPOINT = re.compile(r"step-(\d{8,})")

    def __init__(self, folder: str | os.PathLike[str], save_freq: int = 100) -> None:
        self.folder, self.save_freq = os.fspath(folder), save_freq
        self.before: dict[str, Any] = {}  # the run's own keys
        self.last = ""  # checkpoint

    def on_run(self, run: Run) -> None:
        own: dict[str, Any] = {"checkpoint.directory": run["checkpoint.directory"],
                               "checkpoint.every": run["checkpoint.every"]}
        run["checkpoint.directory"], run["checkpoint.every"] = self.folder, self.save_freq
        if own["checkpoint.directory"] == run["checkpoint.directory"]:  # an earlier fit failed
            own = self.before or {"checkpoint.directory": "auto", "checkpoint.every": "auto"}
        self.before = own

    def on_train_end(self, logs: Metrics) -> None:
        self.last = f"step-{self.training.step_count:08}"

    def _steps(self, folder: str) -> list[str]:
        """The folders of checkpoints, the newest last."""
        found = [self._CHECKPOINT.fullmatch(name) for name in os.listdir(folder)]
        return [match[0] for match in sorted(filter(None, found), key=lambda match: int(match[1]))]

    def _keep(self, backup: str, kept: str, best: bool) -> None:
        steps = self._steps(backup)
        os.makedirs(kept, exist_ok=True)
        for name in steps:
            path = os.path.join(backup, name)
            if best or name == steps[-1]:
                _move(path, os.path.join(kept, name))
            else:
                shutil.rmtree(path)
        with contextlib.suppress(OSError):  # it has something else, which is not ours
            os.rmdir(backup)

    def on_success(self, run: Run) -> None:
        backup, kept = run["checkpoint.directory"], self.before["checkpoint.directory"]
        for key, value in self.before.items():
            run._set(key, value)
        if kept == "auto":
            kept = os.path.join(run["log.directory"], "checkpoints")
        if self.last and run["checkpoint.resume"] != "never" and any(
                os.path.isdir(os.path.join(folder, self.last)) for folder in (backup, kept)):
            run["checkpoint.resume"] = os.path.join(kept, self.last)  # of a further fit
        if is_first() and os.path.isdir(backup):
            self._keep(backup, kept, run["checkpoint.keep_best"] not in ("false", "0"))


class EarlyStopping(Callback):
    """Stops when `monitor` has not improved by min_delta for `patience` measurements. For the
    validation loss it sets the keys training.patience and training.min_improvement: the run's own
    validations count, and a fit that goes on from a checkpoint keeps the count."""

    def __init__(self, monitor: str = "valid_loss", min_delta: float = 0.0,
                 patience: int = 0) -> None:
        self.monitor, self.min_delta, self.patience = monitor, min_delta, patience
        self.best, self.waited = math.inf, 0
        self.stopped_step: int | None = None

    def _is_key(self) -> bool:
        return self.monitor == "valid_loss"

    def on_run(self, run: Run) -> None:
        if self._is_key():
            run["training.patience"] = max(self.patience, 1)  # 0 means off there
            run["training.min_improvement"] = self.min_delta

    def on_train_begin(self, logs: Metrics) -> None:
        self.best, self.waited = math.inf, 0

    def on_train_end(self, logs: Metrics) -> None:
        ended = self.training.done and not self.training.stopped
        if self._is_key() and ended and self.training.step_count < self.training.last_step:
            self.stopped_step = self.training.step_count

    def on_train_batch_end(self, step: int, logs: Metrics) -> None:
        value: Any = None if self._is_key() else logs.get(self.monitor)
        if value is None:
            return
        if value < self.best - self.min_delta:
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.stopped_step = step
            self.training.stop_training = True


class BestCheckpoint(Callback):
    """Keeps the checkpoints with the lowest validation losses, as many as `keep`: the key
    checkpoint.keep_best. A validation with such a loss saves a checkpoint."""

    def __init__(self, keep: int = 1) -> None:
        self.keep = keep

    def on_run(self, run: Run) -> None:
        run["checkpoint.keep_best"] = self.keep


class LearningRateScheduler(Callback):
    """Sets the learning rate of each step to schedule(step, rate): the number of steps done, and
    the last step's rate, for the first step optimizer.learning_rate."""

    def __init__(self, schedule: Callable[[int, float], float]) -> None:
        self.schedule, self.rate = schedule, math.nan

    def _set(self, step: int) -> None:
        self.rate = float(self.schedule(step, self.rate))
        self.training.set("optimizer.learning_rate", self.rate)

    def on_train_begin(self, logs: Metrics) -> None:
        self.rate = float(self.training.run["optimizer.learning_rate"])
        self._set(logs["step"])

    def on_train_batch_end(self, step: int, logs: Metrics) -> None:
        self._set(step)


class TensorBoard(Callback):
    """Writes TensorBoard's event files into the run directory, log_dir if it is given: the keys
    log.tensorboard and log.directory."""

    def __init__(self, log_dir: str | os.PathLike[str] | None = None) -> None:
        self.log_dir = log_dir

    def on_run(self, run: Run) -> None:
        run["log.tensorboard"] = True
        if self.log_dir is not None:
            run["log.directory"] = os.fspath(self.log_dir)


class CSVLogger(Callback):
    """Writes the metrics of each step as a line of a CSV file, in the first process alone. Runs on
    images or features have a column samples in place of tokens."""

    COLUMNS = ("step", "loss", "valid_loss", "grad_norm", "learning_rate", "tokens", "seconds")

    def __init__(self, filename: str | os.PathLike[str], append: bool = False) -> None:
        self.filename, self.append = filename, append

    def on_train_begin(self, logs: Metrics) -> None:
        self.file: Any = None
        if is_first():
            self.file = open(self.filename, "a" if self.append else "w", newline="",
                             encoding="utf-8")
            self.has_header = os.fstat(self.file.fileno()).st_size > 0

    def on_train_batch_end(self, step: int, logs: Metrics) -> None:
        if not self.file:
            return
        columns = [name if name != "tokens" or name in logs else "samples" for name in self.COLUMNS]
        writer = csv.DictWriter(self.file, columns, extrasaction="ignore")
        if not self.has_header:
            writer.writeheader()
        self.has_header = True
        writer.writerow(logs)
        self.file.flush()

    def on_train_end(self, logs: Metrics) -> None:
        if self.file:
            self.file.close()


class ProgressBar(Callback):
    """A progress bar of tqdm where it is installed, and otherwise a line for every tenth of the
    steps; in the first process alone."""

    def on_train_begin(self, logs: Metrics) -> None:
        self.total = self.training.last_step
        self.tenth = max(self.total // 10, 1)
        self.bar: Any = None
        if not is_first():
            return
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
            self.bar = tqdm(total=self.total, initial=logs["step"])
        except ImportError:
            pass

    def on_train_batch_end(self, step: int, logs: Metrics) -> None:
        if self.bar:
            self.bar.update(step - self.bar.n)
            self.bar.set_postfix(loss=f"{logs['loss']:.4f}")
        elif is_first() and (step % self.tenth == 0 or step == self.total):
            print(f"step {step} of {self.total}: loss {logs['loss']:.4f}", flush=True)

    def on_train_end(self, logs: Metrics) -> None:
        if self.bar:
            self.bar.close()
