# SPDX-License-Identifier: Apache-2.0
"""Strategies: how a run is spread over ranks. Each is a set of keys of the run file; names are
those of tf.distribute, or of the technique."""
from __future__ import annotations

from typing import Any


class Strategy:
    """Keys of the parallel section, by name without "parallel."; None: the key's default."""

    def __init__(self, **keys: Any) -> None:
        self.keys = {name: value for name, value in keys.items() if value is not None}

    def __repr__(self) -> str:
        keys = ", ".join(f"{name}={value!r}" for name, value in self.keys.items())
        return f"{type(self).__name__}({keys})"


class OneDevice(Strategy):
    """One rank."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(strategy="one_device", **keys)


class Grid(Strategy):
    """Synchronous training on a grid of ranks.

    data, pipeline, tensor, context, expert: degrees. Other keys of the parallel section, such as
    schedule="1f1b", may follow.
    """

    def __init__(self, data: int = 1, pipeline: int = 1, tensor: int = 1, context: int = 1,
                 expert: int | None = None, **keys: Any) -> None:
        super().__init__(data=data, pipeline=pipeline, tensor=tensor, context=context,
                         expert=expert, **keys)


class Mirrored(Strategy):
    """Synchronous replicas as threads of this process; each has all weights."""

    def __init__(self, replicas: int, **keys: Any) -> None:
        super().__init__(strategy="mirrored", data=replicas, **keys)


class MultiWorkerMirrored(Strategy):
    """Synchronous replicas over several machines, whose sums are hierarchical: first within each
    machine, whose ranks are counted unless node_ranks says how many."""

    def __init__(self, replicas: int | str = "auto", **keys: Any) -> None:
        super().__init__(strategy="multi_worker_mirrored", data=replicas, **keys)


class TPU(Strategy):
    """Synchronous replicas whose sums go around a torus."""

    def __init__(self, replicas: int | str = "auto", **keys: Any) -> None:
        super().__init__(strategy="tpu", data=replicas, **keys)


class Zero(Grid):
    """Synchronous replicas that share out states (stage 1), gradients (2) and weights (3)."""

    def __init__(self, replicas: int, stage: int = 3, **keys: Any) -> None:
        super().__init__(data=replicas, zero=stage, **keys)


class ParameterServer(Strategy):
    """Workers push gradients to servers, each at its own pace (asp), at most `staleness`
    steps ahead of the slowest (ssp)."""

    def __init__(self, workers: int, servers: int = 1, staleness: int | None = None,
                 **keys: Any) -> None:
        super().__init__(strategy="asp" if staleness is None else "ssp", data=workers,
                         servers=servers, staleness=staleness, **keys)


class CentralStorage(Strategy):
    """Threads of this process share one copy of the weights; each updates its shard."""

    def __init__(self, replicas: int, **keys: Any) -> None:
        super().__init__(strategy="central_storage", data=replicas, **keys)


class LocalSGD(Strategy):
    """Replicas train by themselves and are averaged every `every` steps."""

    def __init__(self, replicas: int, every: int, **keys: Any) -> None:
        super().__init__(strategy="local_sgd", data=replicas, sync_every=every, **keys)


class DiLoCo(Strategy):
    """Local SGD whose averages an outer optimizer takes as gradients."""

    def __init__(self, replicas: int, every: int, **keys: Any) -> None:
        super().__init__(strategy="diloco", data=replicas, sync_every=every, **keys)


class Gossip(Strategy):
    """As LocalSGD; after each step in between, replicas average with their two neighbours."""

    def __init__(self, replicas: int, every: int, **keys: Any) -> None:
        super().__init__(strategy="gossip", data=replicas, sync_every=every, **keys)


class EASGD(Strategy):
    """Replicas keep weights of their own, which attract common weights every `every` steps."""

    def __init__(self, replicas: int, every: int, **keys: Any) -> None:
        super().__init__(strategy="easgd", data=replicas, sync_every=every, **keys)


class Hogwild(Strategy):
    """Threads that update shared weights without locks, by sgd."""

    def __init__(self, workers: int, **keys: Any) -> None:
        super().__init__(strategy="hogwild", data=workers, **keys)
