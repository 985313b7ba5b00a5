# SPDX-License-Identifier: Apache-2.0
"""Compressed gradients with error feedback: PowerSGD (Vogels et al. 2019) and top-k (Lin et al.
2018).

Rank w compresses D_w, its part of the gradient plus what it has not sent yet. Only matrices of
layers are compressed.
"""
import numpy as np
from oracle import gradient

MOMENTUM = 0.9


def is_compressed(name, x):
    return x.ndim == 2 and ".h." in name


class Compressed:
    """SGD with momentum of the gradients that `exchange` makes of every rank's D."""
    model, ranks = "gpt2", 2

    @classmethod
    def replay(cls, case, wrong):
        w = case.start
        buffers = {name: np.zeros_like(x) for name, x in w.items()}
        names = [name for name, x in w.items() if is_compressed(name, x)]
        residuals = {name: np.zeros((cls.ranks, *w[name].shape)) for name in names}
        kept = cls.first(case, names)
        for step in range(case.steps):
            parts = [gradient(case.model, w, case.rank_samples(step, rank, cls.ranks),
                              case.batch * w["transformer.wpe.weight"].shape[0])[1]
                     for rank in range(cls.ranks)]
            g = {name: sum(part[name] for part in parts) for name in w}
            for name in names:
                d = residuals[name] + np.stack([part[name] for part in parts])
                g[name], sent = cls.exchange(name, d, kept, wrong)
                residuals[name] = d - sent
            buffers = {name: MOMENTUM * x + g[name] for name, x in buffers.items()}
            w = {name: x - case.rate * buffers[name] for name, x in w.items()}
            yield step + 1, w | {f"{name}.momentum_buffer": x for name, x in buffers.items()} | \
                {f"{name}.residual": x for name, x in residuals.items()} | \
                {f"{name}.basis": x for name, x in kept.items()}


class PowerSgd(Compressed):
    """Rank 2; the left factor is orthonormal as by QR with a positive diagonal of R."""
    options = {"parallel.compression": "powersgd", "parallel.compression_rank": 2,
               "optimizer.momentum": MOMENTUM}

    @staticmethod
    def first(case, names):
        """The random bases that the run starts with: those of a run of no steps."""
        tensors = case.at_start()
        return {name: tensors[name + ".basis"] for name in names}

    @staticmethod
    def exchange(name, d, bases, wrong):
        p = orthonormal(sum(x @ bases[name] for x in d))
        bases[name] = sum(x.T @ p for x in d)
        sent = p @ bases[name].T
        return sent, sent / (len(d) + (1 if wrong else 0))


class TopK(Compressed):
    """Sends the largest quarter of each line. A line is a column of the (in, out) matrix if tensor
    parallelism shards the product's outputs, else a row."""
    ranks = 2
    options = {"parallel.compression": "topk", "parallel.compression_density": 0.25,
               "optimizer.momentum": MOMENTUM}

    @staticmethod
    def first(case, names):
        return {}

    @staticmethod
    def exchange(name, d, kept, wrong):
        axis = 1 if "c_attn" in name or "c_fc" in name else 2
        count = int(np.ceil(0.25 * d.shape[axis])) - (1 if wrong else 0)
        places = np.argsort(-np.abs(d), axis=axis, kind="stable").take(range(count), axis)
        sent = np.zeros_like(d)
        np.put_along_axis(sent, places, np.take_along_axis(d, places, axis), axis)
        return sent.sum(0), sent


def orthonormal(p):
    q, r = np.linalg.qr(p)
    return q * np.sign(np.diag(r))


SUBJECTS = {"powersgd": PowerSgd, "topk": TopK}
