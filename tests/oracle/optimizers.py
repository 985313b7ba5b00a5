# SPDX-License-Identifier: Apache-2.0
"""Adafactor (Shazeer and Stern 2018), SM3-II (Anil et al. 2019), Muon (Jordan et al. 2024) and
AdamW with 8-bit states (Dettmers et al. 2022).

The model is a Llama. A GPT-2 has gradients that are rounding errors (of the biases of keys), which
rules without a floor under the root would make as large as any other.
"""
import math

import numpy as np


def rms(x):
    return np.sqrt((x ** 2).mean())


class Optimizer:
    """Replays `update(name, w, g, state, step, wrong)`, which changes the parameter's state."""
    model, ranks = "llama", 2

    @classmethod
    def replay(cls, case, wrong):
        w = case.start
        states = {name: {} for name in w}
        for step in range(1, case.steps + 1):
            g = case.step_gradient(w, step - 1)
            w = {name: cls.update(name, x, g[name], states[name], step, case.rate, wrong)
                 for name, x in w.items()}
            yield step, w | {f"{name}.{noun}": x for name, state in states.items()
                             for noun, x in state.items()}


class Adafactor(Optimizer):
    """Keeps sums of squares by row and by column for a matrix. An update has an RMS of 1 at most,
    times the RMS of the weights. Matrices decay at the same rate."""
    options = {"optimizer.name": "adafactor", "optimizer.learning_rate": 0.01}
    momentum, scale_parameter, decay = 0.0, True, 0.0

    @staticmethod
    def rate_of(t, rate):
        return rate

    @classmethod
    def update(cls, name, w, g, s, t, rate, wrong):
        beta2, squares = 1 - t ** (-0.9 if wrong else -0.8), g ** 2 + 1e-30
        if w.ndim == 2:
            s["row_var"] = beta2 * s.get("row_var", 0) + (1 - beta2) * squares.sum(1)
            s["col_var"] = beta2 * s.get("col_var", 0) + (1 - beta2) * squares.sum(0)
            v = np.outer(s["row_var"], s["col_var"]) / s["row_var"].sum()
        else:
            v = s["variance"] = beta2 * s.get("variance", 0) + (1 - beta2) * squares
        u = g / np.sqrt(v)
        rate = cls.rate_of(t, rate) * (max(1e-3, rms(w)) if cls.scale_parameter else 1.0)
        u = u / max(1.0, rms(u)) * rate
        if cls.momentum:
            u = s["exp_avg"] = cls.momentum * s.get("exp_avg", 0) + (1 - cls.momentum) * u
        return w - u - (rate * cls.decay * w if w.ndim == 2 else 0)


class AdafactorMomentum(Adafactor):
    momentum, decay = 0.9, 3.0
    options = Adafactor.options | {"optimizer.momentum": 0.9, "optimizer.weight_decay": 3}


class AdafactorRelative(Adafactor):
    """As transformers' Adafactor by default, for as many steps as the rate is 1e-2, and more."""
    options = {"optimizer.name": "adafactor", "optimizer.relative_step": True,
               "optimizer.learning_rate": None, "optimizer.schedule": None}

    @staticmethod
    def rate_of(t, rate):
        return min(1e-2, 1 / math.sqrt(t))


class AdafactorWarmup(AdafactorRelative):
    """warmup_init, without the size of the weights."""
    scale_parameter, decay = False, 3.0
    options = AdafactorRelative.options | {"optimizer.warmup_init": True,
                                           "optimizer.weight_decay": 3,
                                           "optimizer.scale_parameter": False}

    @staticmethod
    def rate_of(t, rate):
        return min(1e-6 * t, 1 / math.sqrt(t))


class Sm3(Optimizer):
    options = {"optimizer.name": "sm3", "optimizer.momentum": 0.9}

    @staticmethod
    def update(name, w, g, s, t, rate, wrong):
        if w.ndim == 2:
            rows = s.get("row_accumulator", np.zeros(w.shape[0]))
            columns = s.get("column_accumulator", np.zeros(w.shape[1]))
            v = np.minimum(rows[:, None], columns[None, :]) + g ** 2
            s["row_accumulator"], s["column_accumulator"] = v.max(1), v.max(0)
        else:
            v = s["accumulator"] = s.get("accumulator", 0) + g ** 2
        u = np.divide(g, np.sqrt(v), out=np.zeros_like(g), where=v > 0)
        beta = 0.91 if wrong else 0.9
        s["momentum_buffer"] = beta * s.get("momentum_buffer", 0) + (1 - beta) * u
        return w - rate * s["momentum_buffer"]


class Muon(Optimizer):
    """Matrices of layers by five Newton-Schulz iterations of their Nesterov momentum."""
    options = {"optimizer.name": "muon", "optimizer.momentum": 0.95, "optimizer.nesterov": True,
               "optimizer.learning_rate": 0.02, "optimizer.weight_decay": 0.1,
               "optimizer.eps": 1e-7, "optimizer.adamw_rate": 0.5}

    @staticmethod
    def update(name, w, g, s, t, rate, wrong):
        if not (w.ndim == 2 and ".layers." in name):
            return adam_update(name, w, g, s, t, rate * 0.5, decay=0.1, eps=1e-7)
        b = s["momentum_buffer"] = 0.95 * s.get("momentum_buffer", 0) + g
        x = newton_schulz(g + 0.95 * b, 4 if wrong else 5)
        return w * (1 - rate * 0.1) - rate * max(1, w.shape[0] / w.shape[1]) ** 0.5 * x


def newton_schulz(x, times):
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(times):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def adam_update(name, w, g, s, t, rate, decay=0.0, eps=1e-8, beta1=0.9, beta2=0.95):
    s["exp_avg"] = beta1 * s.get("exp_avg", 0) + (1 - beta1) * g
    s["exp_avg_sq"] = beta2 * s.get("exp_avg_sq", 0) + (1 - beta2) * g ** 2
    m, v = s["exp_avg"] / (1 - beta1 ** t), s["exp_avg_sq"] / (1 - beta2 ** t)
    return w - rate * (m / (np.sqrt(v) + eps) + decay * w * (w.ndim > 1))


def dynamic_map(signed):
    """The 256 numbers of the dynamic tree type: a sign, zeros that count the exponent of ten, and a
    linear fraction, of which each number stands for the middle of its interval; and 0 and 1. They
    are fp32, as in the authors' code, in runs of all types."""
    numbers, exponents = [0.0, 1.0], 7
    for i in range(exponents):
        ends = np.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1)
        middles = (ends[:-1] + ends[1:]) / 2 * 10.0 ** (i - exponents + 1)
        numbers += [*middles, *(-middles if signed else [])]
    return np.sort(numbers).astype(np.float32).astype(np.float64)


class AdamW8(Optimizer):
    """Blocks of 4 numbers along the last axis, each by its largest magnitude."""
    block = 4
    options = {"optimizer.name": "adamw8", "optimizer.learning_rate": 0.01, "optimizer.block": 4,
               "optimizer.eps": 1e-6}
    maps = {"exp_avg": dynamic_map(True), "exp_avg_sq": dynamic_map(False)}

    @classmethod
    def update(cls, name, w, g, s, t, rate, wrong):
        full = {noun: cls.wide(s, noun) for noun in cls.maps if noun in s}
        after = adam_update(name, w, g, full, t, rate, eps=1e-6, beta1=0.91 if wrong else 0.9)
        for noun in cls.maps:
            s[noun], s[noun + "_max"] = cls.narrow(full[noun], cls.maps[noun])
        return after

    @classmethod
    def wide(cls, s, noun):
        scales = np.repeat(s[noun + "_max"], cls.block, axis=-1)[..., :s[noun].shape[-1]]
        return cls.maps[noun][s[noun]] * scales

    @classmethod
    def narrow(cls, x, numbers):
        last = x.shape[-1]
        padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -last % cls.block)])
        scales = np.abs(padded.reshape(*x.shape[:-1], -1, cls.block)).max(-1)
        by = np.repeat(scales, cls.block, axis=-1)[..., :last]
        share = np.divide(x, by, out=np.zeros_like(x), where=by > 0)
        return np.abs(share[..., None] - numbers).argmin(-1), scales


SUBJECTS = {"adafactor": Adafactor, "adafactor_momentum": AdafactorMomentum,
            "adafactor_relative": AdafactorRelative, "adafactor_warmup": AdafactorWarmup,
            "sm3": Sm3, "muon": Muon, "adamw8": AdamW8}
