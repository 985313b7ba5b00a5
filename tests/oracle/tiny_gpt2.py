# SPDX-License-Identifier: Apache-2.0
"""A tiny GPT-2 under SGD, with and without momentum, and AdamW (Loshchilov and Hutter 2019)."""
import numpy as np


class Sgd:
    model, ranks = "gpt2", 1
    options = {"optimizer.name": "sgd"}

    @staticmethod
    def replay(case, wrong):
        w, rate = case.start, case.rate * (1.01 if wrong else 1)
        for step in range(case.steps):
            loss, g = case.loss_and_gradient(w, step)
            w = {name: x - rate * g[name] for name, x in w.items()}
            yield step + 1, w | {"metrics.loss": loss, "metrics.grad_norm": norm(g)}


class SgdNesterov:
    """Weight decay of matrices is added to the gradient; Nesterov's as in Sutskever et al. 2013."""
    model, ranks = "gpt2", 2
    options = {"optimizer.momentum": 0.9, "optimizer.nesterov": True,
               "optimizer.weight_decay": 0.05, "optimizer.clip_norm": 0.5}

    @staticmethod
    def replay(case, wrong):
        w, b = case.start, {name: np.zeros_like(x) for name, x in case.start.items()}
        decay = 0.06 if wrong else 0.05
        for step in range(case.steps):
            g = clipped(case.step_gradient(w, step), 0.5)
            g = {name: x + decay * w[name] * (x.ndim > 1) for name, x in g.items()}
            b = {name: 0.9 * x + g[name] for name, x in b.items()}
            w = {name: x - case.rate * (g[name] + 0.9 * b[name]) for name, x in w.items()}
            yield step + 1, w | {f"{name}.momentum_buffer": x for name, x in b.items()}


class AdamW:
    model, ranks = "gpt2", 2
    options = {"optimizer.name": "adamw", "optimizer.learning_rate": 0.01,
               "optimizer.weight_decay": 0.1, "optimizer.eps": 1e-6}

    @staticmethod
    def replay(case, wrong):
        w, state = case.start, AdamState(case.start)
        for step in range(case.steps):
            w = state.update(w, case.step_gradient(w, step), case.rate, decay=0.1, eps=1e-6,
                             beta2=0.96 if wrong else 0.95)
            yield step + 1, w | state.tensors()


class AdamState:
    def __init__(self, weights):
        self.m = {name: np.zeros_like(x) for name, x in weights.items()}
        self.v = {name: np.zeros_like(x) for name, x in weights.items()}
        self.count = 0

    def update(self, w, g, rate, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.0):
        self.count += 1
        new = {}
        for name, x in w.items():
            self.m[name] = beta1 * self.m[name] + (1 - beta1) * g[name]
            self.v[name] = beta2 * self.v[name] + (1 - beta2) * g[name] ** 2
            m = self.m[name] / (1 - beta1 ** self.count)
            v = self.v[name] / (1 - beta2 ** self.count)
            new[name] = x - rate * (m / (np.sqrt(v) + eps) + decay * x * (x.ndim > 1))
        return new

    def tensors(self):
        return {f"{name}.exp_avg": x for name, x in self.m.items()} | \
            {f"{name}.exp_avg_sq": x for name, x in self.v.items()}


def clipped(g, most):
    """To a global norm, with PyTorch's 1e-6."""
    factor = min(1, most / (norm(g) + 1e-6))
    return {name: x * factor for name, x in g.items()}


def norm(g):
    return np.sqrt(sum((x ** 2).sum() for x in g.values()))


SUBJECTS = {"sgd": Sgd, "sgd_nesterov": SgdNesterov, "adamw": AdamW}
