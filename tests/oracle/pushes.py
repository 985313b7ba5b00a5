# SPDX-License-Identifier: Apache-2.0
"""Asynchronous servers: ASP (Dean et al. 2012) and SSP (Ho et al. 2013), replayed from
serves.jsonl.

Push n of a span is worker w's gradient of the samples of training step `clock`, computed with the
weights that the span's first `read` pushes had made, clipped by its own norm. Servers update by it
at once, at the step's learning rate over the number of workers.
"""
import json

from apart import MomentumState
from oracle import gradient
from tiny_gpt2 import AdamState, clipped

CLIP = 0.8


class Asp:
    """Three workers, of which one is slow; two servers; AdamW counts pushes."""
    model, ranks, workers, span = "gpt2", 5, 3, 4
    options = {"parallel.strategy": "asp", "parallel.servers": 2, "parallel.flush_every": 4,
               "checkpoint.every": 4, "training.steps": 8, "training.global_batch_size": 3,
               "optimizer.name": "adamw", "optimizer.learning_rate": 0.02, "optimizer.eps": 1e-6,
               "optimizer.clip_norm": CLIP, "parallel.delay": "1:0.02"}

    @staticmethod
    def optimizer(case):
        return AdamState(case.start)

    @classmethod
    def replay(cls, case, wrong):
        w, state = case.start, cls.optimizer(case)
        lines = [json.loads(line) for line in (case.run / "serves.jsonl").open()]
        pushes, stale = [line for line in lines if "push" in line], 0
        assert len(pushes) == case.steps * cls.workers, "not all pushes were served"
        for number, push in enumerate(pushes):
            if push["push"] == 0:
                versions = [w]
            assert push["push"] == len(versions) - 1 and not push["withheld"], push
            read = push["push"] if wrong else push["read"]
            stale += push["push"] != push["read"]
            g = clipped(gradient(case.model, versions[read], case.rank_samples(
                push["clock"] - 1, push["worker"], cls.workers))[1], CLIP)
            w = cls.update(state, w, g, case.rate / cls.workers)
            versions.append(w)
            if (number + 1) % (cls.workers * cls.span) == 0:
                yield push["step"], w | state.tensors()
        assert stale > 0, "no push was stale"

    @staticmethod
    def update(state, w, g, rate):
        return state.update(w, g, rate, eps=1e-6)


class Ssp(Asp):
    """SGD with momentum; no worker more than a step ahead of the slowest."""
    options = Asp.options | {"parallel.strategy": "ssp", "parallel.staleness": 1,
                             "optimizer.name": "sgd", "optimizer.learning_rate": 0.1,
                             "optimizer.momentum": 0.7}
    del options["optimizer.eps"]

    @staticmethod
    def optimizer(case):
        return MomentumState(case.start, 0.7)

    @staticmethod
    def update(state, w, g, rate):
        return state.update(w, g, rate)


SUBJECTS = {"asp": Asp, "ssp": Ssp}
