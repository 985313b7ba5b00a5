# SPDX-License-Identifier: Apache-2.0
"""Callbacks of Run.fit, named as in Keras; a batch of Keras is a training step here. They run in
the thread that called fit, between steps, and may make any call of Training but step and finish."""
import contextlib
import csv
import math
import os
import shutil

from ._launch import is_first


class Callback:
    """Override what you need. self.training is set before on_train_begin."""

    training = None

    def on_run(self, run):
        """Before training starts; may set keys of the run."""

    def on_train_begin(self, logs):
        """Weights are there; logs: step."""

    def on_train_batch_end(self, step, logs):
        """After each step; logs: its metrics (Training.step)."""

    def on_test_end(self, step, logs):
        """After a validation; logs: valid_loss."""

    def on_save(self, step, logs):
        """A checkpoint of this step was begun."""

    def on_train_end(self, logs):
        """After the last step, before the ranks end; logs: its metrics."""

    def on_success(self, run):
        """After the ranks have ended without an error, all steps done or a callback's stop."""


class _All:
    """The callbacks of a fit, in order."""

    def __init__(self, callbacks):
        self.callbacks, self.logs = list(callbacks), {}

    def before(self, run):
        for callback in self.callbacks:
            callback.on_run(run)

    def begin(self, training):
        self.logs = {"step": training.step_count}
        for callback in self.callbacks:
            callback.training = training
            callback.on_train_begin(dict(self.logs))

    def step(self, training, metrics):
        self.logs, step = metrics, metrics["step"]
        for callback in self.callbacks:
            callback.on_train_batch_end(step, dict(metrics))
            if "valid_loss" in metrics:
                callback.on_test_end(step, {"valid_loss": metrics["valid_loss"]})
            if metrics["saved"]:
                callback.on_save(step, dict(metrics))

    def end(self, training):
        for callback in self.callbacks:
            callback.on_train_end(dict(self.logs))

    def after(self, run):
        for callback in self.callbacks:
            callback.training = None
            callback.on_success(run)


class LambdaCallback(Callback):
    """Calls functions: LambdaCallback(on_train_batch_end=lambda step, logs: print(logs))."""

    def __init__(self, **functions):
        for name, function in functions.items():
            if not name.startswith("on_") or not hasattr(Callback, name):
                raise TypeError(f"{name}: callbacks have on_run, on_train_begin, "
                                "on_train_batch_end, on_test_end, on_save, on_train_end and "
                                "on_success")
            setattr(self, name, function)


class BackupAndRestore(Callback):
    """Keeps checkpoints in `folder`, from which the same fit goes on after it was killed. When
    training has succeeded, the last one moves to where the run's checkpoints belong, and the
    others are removed, with the folder if nothing else is in it. save_freq: steps between
    checkpoints."""

    def __init__(self, folder, save_freq=100):
        self.folder, self.save_freq, self.kept = os.fspath(folder), save_freq, None

    def on_run(self, run):
        kept = run["checkpoint.directory"]
        if kept == self.folder:  # the run of an earlier fit
            kept = self.kept or "auto"
        self.kept = kept if kept != "auto" else os.path.join(run["log.directory"], "checkpoints")
        run["checkpoint.directory"] = self.folder
        run["checkpoint.every"] = self.save_freq

    def on_success(self, run):
        if not is_first():
            return
        steps = sorted(name for name in os.listdir(self.folder) if name.startswith("step-"))
        for name in steps:
            path, target = os.path.join(self.folder, name), os.path.join(self.kept, name)
            if name == steps[-1] and not os.path.exists(target):
                os.makedirs(self.kept, exist_ok=True)
                shutil.move(path, target)
            else:
                shutil.rmtree(path)
        with contextlib.suppress(OSError):  # it has something else, which is not ours
            os.rmdir(self.folder)


class EarlyStopping(Callback):
    """Stops when `monitor` has not improved by min_delta for `patience` measurements."""

    def __init__(self, monitor="valid_loss", min_delta=0.0, patience=0):
        self.monitor, self.min_delta, self.patience = monitor, min_delta, patience
        self.best, self.waited = math.inf, 0
        self.stopped_step = None

    def on_train_begin(self, logs):
        self.best, self.waited = math.inf, 0

    def on_train_batch_end(self, step, logs):
        if self.monitor not in logs:
            return
        if logs[self.monitor] < self.best - self.min_delta:
            self.best, self.waited = logs[self.monitor], 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.stopped_step = step
            self.training.stop_training = True


class LearningRateScheduler(Callback):
    """Sets the learning rate of each step to schedule(step, rate): the number of steps done, and
    the last step's rate."""

    def __init__(self, schedule):
        self.schedule, self.rate = schedule, None

    def _set(self, step):
        self.rate = float(self.schedule(step, self.rate))
        self.training.set("optimizer.learning_rate", self.rate)

    def on_train_begin(self, logs):
        self.rate = float(self.training.run["optimizer.learning_rate"])
        self._set(logs["step"])

    def on_train_batch_end(self, step, logs):
        self._set(step)


class CSVLogger(Callback):
    """Writes the metrics of each step as a line of a CSV file."""

    COLUMNS = ("step", "loss", "valid_loss", "grad_norm", "learning_rate", "tokens", "seconds")

    def __init__(self, filename, append=False):
        self.filename, self.append, self.file = filename, append, None

    def on_train_begin(self, logs):
        has = self.append and os.path.exists(self.filename)
        self.file = open(self.filename, "a" if self.append else "w", newline="", encoding="utf-8")
        self.writer = csv.DictWriter(self.file, self.COLUMNS, extrasaction="ignore")
        if not has:
            self.writer.writeheader()

    def on_train_batch_end(self, step, logs):
        self.writer.writerow(logs)
        self.file.flush()

    def on_train_end(self, logs):
        self.file.close()


class ProgressBar(Callback):
    """A progress bar of tqdm where it is installed, and otherwise a line for every tenth of the
    steps."""

    def on_train_begin(self, logs):
        self.total = int(self.training.run["training.steps"])
        self.tenth = max(self.total // 10, 1)
        try:
            from tqdm.auto import tqdm
            self.bar = tqdm(total=self.total, initial=logs["step"])
        except ImportError:
            self.bar = None

    def on_train_batch_end(self, step, logs):
        if self.bar:
            self.bar.update(step - self.bar.n)
            self.bar.set_postfix(loss=f"{logs['loss']:.4f}")
        elif step % self.tenth == 0 or step == self.total:
            print(f"step {step} of {self.total}: loss {logs['loss']:.4f}", flush=True)

    def on_train_end(self, logs):
        if self.bar:
            self.bar.close()
