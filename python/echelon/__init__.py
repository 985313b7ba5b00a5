# SPDX-License-Identifier: Apache-2.0
"""Echelon trains large neural networks across many devices.

    import echelon
    run = echelon.Run("run.yaml", strategy=echelon.Grid(pipeline=2, tensor=2))
    print(run.plan())
    history = run.fit(callbacks=[echelon.EarlyStopping("valid_loss", patience=3)])

Run holds the keys of a run file, plans and trains. Strategies (Grid, Zero, Mirrored ...) spread it
over ranks. Callbacks run between steps. Training makes steps one by one, and its weights and states
are arrays. Every failure is an Error.
"""
from ._library import (CommunicationError, Error, InputError, InternalError, IoError,
                       NumericError, OutOfMemoryError, UnsupportedError, UsageError, library)
from ._keys import Keys, keys
from .callbacks import (BackupAndRestore, BestCheckpoint, Callback, CSVLogger, EarlyStopping,
                        LambdaCallback, LearningRateScheduler, ProgressBar, TensorBoard)
from .run import History, Metrics, Plan, Run, Training, set_log
from .strategies import (CentralStorage, DiLoCo, EASGD, Gossip, Grid, Hogwild, LocalSGD,
                         Mirrored, MultiWorkerMirrored, OneDevice, ParameterServer, Strategy, TPU,
                         Zero)
from .tensors import Tensors
from .trained import Likelihood, Verification, checkpoints, evaluate, sample, score

__all__ = [
    "Run", "Plan", "Training", "Tensors", "History", "Metrics", "Keys", "keys", "set_log",
    "Verification", "evaluate", "score", "Likelihood", "sample", "checkpoints",
    "Strategy", "OneDevice", "Mirrored", "MultiWorkerMirrored", "ParameterServer",
    "CentralStorage", "TPU", "Grid", "Zero", "LocalSGD", "DiLoCo", "Gossip", "EASGD",
    "Hogwild",
    "Callback", "BackupAndRestore", "BestCheckpoint", "EarlyStopping", "LearningRateScheduler",
    "CSVLogger", "ProgressBar", "LambdaCallback", "TensorBoard",
    "Error", "UsageError", "InputError", "IoError", "OutOfMemoryError", "UnsupportedError",
    "CommunicationError", "NumericError", "InternalError"]
__version__ = library.echelon_version().decode()
