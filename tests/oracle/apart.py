# SPDX-License-Identifier: Apache-2.0
"""Replicas that take steps of their own: local SGD (Stich 2019), DiLoCo (Douillard et al. 2023) and
gossip (Lian et al. 2017; Chen et al. 2021), elastic averaging (Zhang et al. 2015)."""
import numpy as np
from oracle import gradient
from tiny_gpt2 import AdamState, clipped

CLIP = 1.5


class Apart:
    """Three replicas meet every `every` steps; `outer` is (rate, momentum) of the outer
    optimizer."""
    model, ranks = "llama", 3
    adam, mixes, outer, every = False, False, (1.0, 0.0), 2

    @classmethod
    def replay(cls, case, wrong):
        ranks, momentum = cls.ranks, case.options.get("optimizer.momentum", 0)
        replicas = [case.start] * ranks
        inner = [cls.inner(case, momentum) for _ in range(ranks)]
        anchor, outer = case.start, {name: np.zeros_like(x) for name, x in case.start.items()}
        for step in range(case.steps):
            for rank in range(ranks):
                g = clipped(gradient(case.model, replicas[rank],
                                     case.rank_samples(step, rank, ranks))[1], CLIP)
                replicas[rank] = inner[rank].update(replicas[rank], g, case.rate)
            if (step + 1) % cls.every:
                if cls.mixes:
                    ring = [replicas[-1], *replicas, replicas[0]]
                    replicas = [mean(ring[rank:rank + (2 if wrong else 3)])
                                for rank in range(ranks)]
                continue
            rate, mu = cls.outer
            rate *= 1.1 if wrong and not cls.mixes else 1
            common = mean(replicas)
            moved = {name: x - common[name] for name, x in anchor.items()}
            outer = {name: mu * outer[name] + x for name, x in moved.items()}
            anchor = {name: x - rate * (moved[name] + mu * outer[name])
                      for name, x in anchor.items()}
            replicas = [anchor] * ranks
            tensors = anchor | {name + ".anchor": x for name, x in anchor.items()}
            if mu > 0:
                tensors |= {name + ".outer_momentum": x for name, x in outer.items()}
            for name in inner[0].tensors():
                tensors[name] = np.stack([state.tensors()[name] for state in inner])
            yield step + 1, tensors

    @staticmethod
    def inner(case, momentum):
        return MomentumState(case.start, momentum)


class MomentumState:
    def __init__(self, weights, momentum):
        self.b = {name: np.zeros_like(x) for name, x in weights.items()}
        self.momentum = momentum

    def update(self, w, g, rate):
        self.b = {name: self.momentum * x + g[name] for name, x in self.b.items()}
        return {name: x - rate * self.b[name] for name, x in w.items()}

    def tensors(self):
        if self.momentum == 0:
            return {}
        return {name + ".momentum_buffer": x for name, x in self.b.items()}


def mean(replicas):
    return {name: sum(w[name] for w in replicas) / len(replicas) for name in replicas[0]}


SHARED = {"training.global_batch_size": 6, "training.steps": 6, "optimizer.clip_norm": CLIP,
          "optimizer.momentum": 0.8, "parallel.sync_every": 2, "checkpoint.every": 2}


class LocalSgd(Apart):
    options = SHARED | {"parallel.strategy": "local_sgd"}


class DiLoCo(Apart):
    """AdamW inside, Nesterov momentum outside."""
    outer = (0.7, 0.9)
    options = SHARED | {"parallel.strategy": "diloco", "optimizer.name": "adamw",
                        "optimizer.learning_rate": 0.01}
    del options["optimizer.momentum"]

    @staticmethod
    def inner(case, momentum):
        return AdamState(case.start)


class Gossip(Apart):
    """Steps 1 and 2 of three are followed by a mixing with the ring's neighbours."""
    ranks, every, mixes = 4, 3, True
    options = SHARED | {"parallel.strategy": "gossip", "parallel.sync_every": 3,
                        "checkpoint.every": 3, "training.global_batch_size": 4,
                        "training.steps": 9}


class GossipOfTwo(Gossip):
    """Of two replicas both neighbours are the other one."""
    ranks = 2
    options = Gossip.options | {"training.global_batch_size": 2}


class EASGD(Apart):
    """Replicas and the center attract each other; the center is the model."""
    options = SHARED | {"parallel.strategy": "easgd", "parallel.outer_learning_rate": 0.9}

    @classmethod
    def replay(cls, case, wrong):
        ranks, momentum = cls.ranks, case.options["optimizer.momentum"]
        beta = case.options["parallel.outer_learning_rate"]
        replicas, center = [case.start] * ranks, case.start
        inner = [cls.inner(case, momentum) for _ in range(ranks)]
        for step in range(case.steps):
            for rank in range(ranks):
                g = clipped(gradient(case.model, replicas[rank],
                                     case.rank_samples(step, rank, ranks))[1], CLIP)
                replicas[rank] = inner[rank].update(replicas[rank], g, case.rate)
            if (step + 1) % cls.every:
                continue
            common = mean(replicas)
            after = {name: (1 - beta) * x + beta * common[name] for name, x in center.items()}
            towards = after if wrong else center
            replicas = [{name: x - beta / ranks * (x - towards[name]) for name, x in w.items()}
                        for w in replicas]
            center = after
            tensors = center | {name + ".anchor": np.stack([w[name] for w in replicas])
                                for name in center}
            for name in inner[0].tensors():
                tensors[name] = np.stack([state.tensors()[name] for state in inner])
            yield step + 1, tensors


SUBJECTS = {"local_sgd": LocalSgd, "diloco": DiLoCo, "gossip": Gossip,
            "gossip_of_two": GossipOfTwo, "easgd": EASGD}
