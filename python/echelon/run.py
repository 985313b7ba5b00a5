# SPDX-License-Identifier: Apache-2.0
"""Runs: keys, plans, training step by step, and fit."""
import contextlib
import ctypes
import html
import json
import math
import os
import sys
import threading
import traceback
from collections.abc import Mapping

from . import _launch, _library
from ._library import UsageError, check, library
from .callbacks import _All
from .trained import Verification, checkpoints, evaluate, sample

_logs = []  # all callbacks that the library ever had: a thread may still be about to call one
_calling = threading.local()  # .log: this thread is the library's, and in such a callback


def set_log(function):
    """Calls function(line) with each line that the program would print on standard error. Any
    thread of the library may call it. None: the lines are dropped."""
    def call(line, _):
        _calling.log = True
        try:
            function(line.decode(errors="replace"))
        finally:
            _calling.log = False
    new = _library.LOG(call) if function else ctypes.cast(None, _library.LOG)
    _logs.append(new)
    library.echelon_set_log(new, None)


def keys():
    """All keys of run files, as a dict from "section.key" to a dict of type, fallback (the
    default), help and more."""
    found, key = {}, _library.Key()
    while library.echelon_key_at(len(found), ctypes.byref(key)) == 0:
        texts = {name: getattr(key, name).decode()
                 for name in ("section", "name", "type", "fallback", "help", "more")}
        found[f"{texts.pop('section')}.{texts.pop('name')}"] = texts
    return found


def _text(value):
    """A key's value as a run file has it."""
    if isinstance(value, str) and "\0" in value:
        raise UsageError(f"{value!r}: a value has no NUL")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


class Plan:
    """A run's plan: print it, or show it in a notebook."""

    def __init__(self, run, **options):
        handle = ctypes.c_void_p()
        if options.get("cluster") is not None:
            options["cluster"] = os.fspath(options["cluster"]).encode()
        check(library.echelon_plan_create(run._handle, _library.PlanOptions(**options),
                                          ctypes.byref(handle)))
        self._handle = handle

    def __del__(self):
        if getattr(self, "_handle", None):
            library.echelon_plan_free(self._handle)

    def _get(self, function):
        text = function(self._handle)
        if text is None:
            raise UsageError(library.echelon_last_error().decode())
        return text.decode()

    def __str__(self):
        return self._get(library.echelon_plan_text)

    def json(self):
        """What `echelon plan --json` prints, as a dict (docs/formats.md)."""
        return json.loads(self._get(library.echelon_plan_json))

    @property
    def svg(self):
        """The simulated timeline."""
        return self._get(library.echelon_plan_svg)

    @property
    def ranks(self):
        """Number of ranks, without evaluators."""
        return library.echelon_plan_ranks(self._handle)

    def bytes(self, rank=0):
        """The rank's peak of each kind of memory, in bytes."""
        if not 0 <= rank < self.ranks:
            raise IndexError(f"rank {rank} of {self.ranks}")
        return {library.echelon_memory_kind(kind).decode():
                library.echelon_plan_bytes(self._handle, rank, kind)
                for kind in range(library.echelon_memory_kinds())}

    def _repr_html_(self):
        return f"{self.svg}<pre>{html.escape(str(self))}</pre>"


class Tensors(Mapping):
    """Parameters, or the optimizer's states, by name: whole tensors under any layout.

    An item is a NumPy array, or without NumPy, and for bf16, a bytearray of its elements. It is a
    copy; assign to an item to change the tensor. States are named NAME.STATE, as
    "lm_head.weight.exp_avg".
    """

    def __init__(self, training, states):
        self._training = training
        self._index, self._info = {}, {}
        for index in range(library.echelon_tensor_count(training._open())):
            info = _library.Tensor()
            check(library.echelon_tensor_at(training._open(), index, ctypes.byref(info)))
            if bool(info.state) != states:
                continue
            name = info.name.decode() + ("." + info.state.decode() if info.state else "")
            self._index[name], self._info[name] = index, info

    def __iter__(self):
        return iter(self._index)

    def __len__(self):
        return len(self._index)

    def shape(self, name):
        info = self._info[name]
        return tuple(info.shape[:info.dims])

    def dtype(self, name):
        return self._info[name].dtype.decode()

    def __getitem__(self, name):
        index, info = self._index[name], self._info[name]
        data = bytearray(info.bytes)
        view = (ctypes.c_char * info.bytes).from_buffer(data) if info.bytes else None
        check(library.echelon_tensor_read(self._training._open(), index, view, info.bytes))
        return self._array(name, data)

    def _array(self, name, data):
        kinds = {"fp32": "f4", "fp64": "f8", "fp16": "f2", "uint8": "u1"}
        kind = kinds.get(self.dtype(name))
        with contextlib.suppress(ImportError):
            import numpy
            if kind:
                return numpy.frombuffer(data, kind).reshape(self.shape(name))
        return data

    def __setitem__(self, name, value):
        index, info = self._index[name], self._info[name]
        with contextlib.suppress(ImportError):
            import numpy
            if isinstance(value, numpy.ndarray):
                like = self._array(name, bytearray(info.bytes))
                if tuple(value.shape) != self.shape(name):  # no broadcasting
                    raise UsageError(f"{name} has the shape {self.shape(name)}, not "
                                     f"{tuple(value.shape)}")
                if isinstance(like, bytearray):
                    raise UsageError(f"{name} is {self.dtype(name)}, which NumPy does not have; "
                                     "assign its bytes")
                value = numpy.ascontiguousarray(value, like.dtype).tobytes()
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise UsageError(f"{name}: assign a NumPy array or bytes, not a "
                             f"{type(value).__name__}")
        data = bytes(value)
        check(library.echelon_tensor_write(self._training._open(), index, data, len(data)))


class Training:
    """A training under way, step by step. Made by Run.train; a context manager that ends it.

    With several processes, each of them makes the same calls in the same order.
    """

    def __init__(self, run, ranks=0):
        self.run = run
        self.stop_training = False  # callbacks may set it: no further step
        self._process = os.getpid()
        self._handle = ctypes.c_void_p()  # the library fills it, also if an interrupt follows
        check(library.echelon_train_start(run._handle, _library.TrainOptions(ranks=ranks),
                                          ctypes.byref(self._handle)))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None:
            self.finish()
        elif self._handle and self.run["parallel.comm"] != "local":
            traceback.print_exception(kind, error, trace)  # the abort ends this process
            sys.stderr.flush()
            handle, self._handle = self._handle, None
            library.echelon_train_abort(handle)
        else:  # the error that is on its way says more
            with contextlib.suppress(_library.Error):
                self.finish()

    def __del__(self):
        # Not in a forked child, which has no ranks; nor on a rank's thread, which would wait for
        # itself.
        if getattr(self, "_process", None) != os.getpid() or getattr(_calling, "log", False):
            return
        with contextlib.suppress(Exception):
            self.finish()

    def _open(self):
        if not self._handle:
            raise UsageError("this training has ended")
        return self._handle

    @property
    def done(self):
        """True if all steps are done, or training was told to stop."""
        return library.echelon_train_is_done(self._open())

    @property
    def step_count(self):
        """Training steps done so far, of all starts."""
        return library.echelon_train_steps(self._open())

    def step(self):
        """Makes a training step and what is due after it. Returns its metrics as a dict: step,
        loss, grad_norm, learning_rate, tokens (so far), seconds, withheld, saved, and valid_loss
        if it was measured."""
        metrics = _library.Metrics()
        check(library.echelon_train_step(self._open(), ctypes.byref(metrics)))
        found = {name: getattr(metrics, name) for name, _ in metrics._fields_[1:]}
        found["withheld"], found["saved"] = bool(found["withheld"]), bool(found["saved"])
        if math.isnan(found["valid_loss"]):
            del found["valid_loss"]
        return found

    def save(self):
        """Saves a checkpoint now, and returns when it is complete."""
        check(library.echelon_train_save(self._open()))

    def validate(self):
        """The mean loss over the validation data."""
        loss = ctypes.c_double()
        check(library.echelon_train_validate(self._open(), ctypes.byref(loss)))
        return loss.value

    def set(self, key, value):
        """Sets optimizer.learning_rate or optimizer.clip_norm for the following steps."""
        check(library.echelon_train_set(self._open(), key.encode(), value))

    @property
    def weights(self):
        """Every parameter, in the type that training keeps it in."""
        return Tensors(self, False)

    @property
    def states(self):
        """Every state of the optimizer."""
        return Tensors(self, True)

    def finish(self):
        """Ends the ranks. Steps since the last checkpoint are lost if not all steps are done."""
        handle, self._handle = self._handle, None
        if handle:
            check(library.echelon_train_finish(handle))


class History:
    """What fit returns: `history` has a list for each metric, `step` the numbers of steps."""

    def __init__(self):
        self.step, self.history = [], {}

    def add(self, metrics):
        self.step.append(metrics["step"])
        for name, value in metrics.items():
            if name != "step":
                self.history.setdefault(name, []).append(value)


class Run:
    """A run file and keys.

    file: a run file; or text: its text. model: a model folder (model.init_from). data: texts or a
    folder of `echelon data` (data.train). strategy: a Strategy. Further keywords are keys, as
    **{"training.steps": 1000}; Run.keys and echelon.keys() list them.
    """

    def __init__(self, file=None, *, text=None, model=None, data=None, strategy=None, **settings):
        handle = ctypes.c_void_p()
        self._handle = None
        if file is not None and text is not None:
            raise UsageError("give file or text, not both")
        if file is not None:
            check(library.echelon_run_open(os.fspath(file).encode(), ctypes.byref(handle)))
        else:
            check(library.echelon_run_open_text((text or "").encode(), b"the run",
                                                ctypes.byref(handle)))
        self._handle = handle
        chosen = {} if file is not None else {"parallel.comm": _launch.comm()}
        chosen |= {f"parallel.{key}": value
                   for key, value in (strategy.keys if strategy else {}).items()}
        if model is not None:
            chosen["model.init_from"] = model
        if data is not None:
            chosen["data.train"] = data
        for key, value in (chosen | settings).items():
            self[key] = value

    def __del__(self):
        if getattr(self, "_handle", None):
            library.echelon_run_close(self._handle)

    def __setitem__(self, key, value):
        check(library.echelon_run_set(self._handle, key.encode(), _text(value).encode()))

    def __getitem__(self, key):
        """The key's value as text."""
        value = ctypes.c_char_p()
        check(library.echelon_run_get(self._handle, key.encode(), ctypes.byref(value)))
        return value.value.decode()

    def plan(self, *, ranks=0, per_machine=0, cluster=None, tokens=0.0, steps=False,
             simulate=False):
        """Plans the run on all ranks, as `echelon plan` does with these options."""
        return Plan(self, ranks=ranks, per_machine=per_machine, cluster=cluster, tokens=tokens,
                    steps=steps, simulate=simulate)

    def verify(self, *, ranks=0, steps=0, tolerance=0.0, own_precision=False):
        """Compares a few training steps of this layout with one rank, as `echelon verify` does.
        steps: 0 means 2. tolerance: the largest error in fp64 that passes (0: 1e-11, or ten units).
        own_precision: compares in the run's own precision, too. Returns a Verification."""
        return Verification(self, ranks=ranks, steps=steps, tolerance=tolerance,
                            own_precision=own_precision)

    def _trained(self):
        folder = self["checkpoint.directory"]
        return self["log.directory"] if folder == "auto" else folder

    def evaluate(self, data=None, **options):
        """The loss of the newest checkpoint on data (data.valid, unless given), as a dict. Options
        are those of echelon.evaluate."""
        data = self["data.valid"] if data is None else data
        if not data:
            raise UsageError("evaluate: name data; the run has no data.valid")
        return evaluate(self._trained(), data, **options)

    def sample(self, prompt="", **options):
        """Text that the newest checkpoint writes after the prompt. Options are those of
        echelon.sample."""
        return sample(self._trained(), prompt, **options)

    def checkpoints(self):
        """The run's checkpoints, newest first: a list of dicts, as echelon.checkpoints returns."""
        return checkpoints(self._trained())

    def train(self, *, ranks=0):
        """Starts training, to be driven step by step:

            with run.train() as training:
                while not training.done:
                    print(training.step()["loss"])
        """
        return Training(self, ranks)

    def fit(self, callbacks=(), *, ranks=0):
        """Trains until all steps are done, or a callback sets training.stop_training. A callback
        that raises ends all ranks. Ctrl-C finishes the step, saves and returns; under strategies
        whose replicas differ it first goes on to their next average. Strategies with spans of
        steps (asp, hogwild, pipedream) call back once for each span."""
        history, all_of, stopped = History(), _All(callbacks), False
        all_of.before(self)
        with self.train(ranks=ranks) as training:
            all_of.begin(training)
            try:
                while not training.done and not training.stop_training:
                    metrics = training.step()
                    history.add(metrics)
                    all_of.step(training, metrics)
            except KeyboardInterrupt:
                stopped = True
            if not training.done:
                self._save(training, history)
            else:  # a signal, or training.time_limit
                stopped = stopped or training.step_count < int(self["training.steps"])
            all_of.end(training)
        if not stopped:
            all_of.after(self)
        return history

    @staticmethod
    def _save(training, history):
        """Saves as soon as all replicas have the same weights."""
        while not training.done:
            try:
                return training.save()
            except UsageError:
                history.add(training.step())
        return None
