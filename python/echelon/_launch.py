# SPDX-License-Identifier: Apache-2.0
"""Finds the launcher that started this process by the environment. The library reads the same
variables (comm/launch.h, comm/tf_config.h); here they choose defaults."""
from __future__ import annotations

import json
import os
from typing import Any

_SIZES = {  # variables of processes that a launcher started, and the comm that joins them
    "OMPI_COMM_WORLD_SIZE": "mpi", "PMI_SIZE": "mpi", "MPI_LOCALNRANKS": "mpi",
    "WORLD_SIZE": "ucx", "SLURM_STEP_NUM_TASKS": "mpi"}  # torchrun may be a task of Slurm
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else 0


def _tf_config() -> tuple[dict[str, Any], dict[str, Any]]:
    """The cluster and the task of TF_CONFIG; empty where the library would refuse it."""
    try:
        value = json.loads(os.environ.get("TF_CONFIG", "{}"))
        return dict(value.get("cluster", {})), dict(value.get("task", {}))
    except (ValueError, TypeError, AttributeError):
        return {}, {}


def comm() -> str:
    """The backend of this process's ranks: threads, unless a launcher started several processes."""
    cluster, task = _tf_config()
    found = [name for size, name in _SIZES.items()
             if _number(size) > 1 and not (cluster and size.startswith("SLURM"))]
    is_evaluator = task.get("type") == "evaluator"
    if not found and (is_evaluator or sum(map(len, cluster.values())) > 1):
        return "ucx"
    return found[0] if found else "local"


def is_first() -> bool:
    """Whether this process is rank 0."""
    cluster, task = _tf_config()
    ranks = [name for name in _RANKS if name in os.environ]
    if ranks and (not cluster or "RANK" in ranks):
        return not any(_number(name) for name in ranks)
    leads = ("chief", "master") if cluster.keys() & {"chief", "master"} else ("worker",)
    return not cluster or (task.get("type") in leads and task.get("index") == 0)
