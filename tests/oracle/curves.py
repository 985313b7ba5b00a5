# SPDX-License-Identifier: Apache-2.0
"""Learning rates: cosine (Loshchilov and Hutter 2017), linear, WSD (Hu et al. 2024) and Adafactor's
inverse square root, each after a linear warmup."""
import math

STEPS, WARMUP, HIGH, LOW = 12, 3, 0.2, 0.02


class Curve:
    """`rate(n, t)` is that of update n (from 0), a share t of the steps after the warmup done."""
    model, ranks = "llama", 1
    options = {"training.steps": STEPS, "optimizer.warmup_steps": WARMUP,
               "optimizer.learning_rate": HIGH, "checkpoint.every": 4}

    @classmethod
    def replay(cls, case, wrong):
        w = case.start
        for step in range(STEPS):
            t = (step - WARMUP + (1 if wrong else 0)) / (STEPS - WARMUP)
            rate = case.rate * (step + 1) / WARMUP if step < WARMUP else cls.rate(step, t)
            g = case.step_gradient(w, step)
            w = {name: x - rate * g[name] for name, x in w.items()}
            if (step + 1) % 4 == 0:
                yield step + 1, w | {"metrics.learning_rate": rate}


class Cosine(Curve):
    options = Curve.options | {"optimizer.schedule": "cosine", "optimizer.min_learning_rate": LOW}

    @staticmethod
    def rate(n, t):
        return LOW + (HIGH - LOW) * (1 + math.cos(math.pi * t)) / 2


class Linear(Curve):
    options = Curve.options | {"optimizer.schedule": "linear", "optimizer.min_learning_rate": LOW}

    @staticmethod
    def rate(n, t):
        return HIGH + (LOW - HIGH) * t


class Wsd(Curve):
    """The last four steps decay."""
    options = Curve.options | {"optimizer.schedule": "wsd", "optimizer.min_learning_rate": LOW,
                               "optimizer.decay_steps": 4}

    @staticmethod
    def rate(n, t):
        left = (1 - t) * (STEPS - WARMUP) / 4
        return LOW + (HIGH - LOW) * min(1, left)


class InverseRoot(Curve):
    """min(learning_rate, 1 / sqrt(t)) of update t, counted from 1."""
    options = Curve.options | {"optimizer.schedule": "rsqrt", "optimizer.learning_rate": 0.3}

    @staticmethod
    def rate(n, t):
        return min(0.3, 1 / math.sqrt(1 + WARMUP + t * (STEPS - WARMUP)))


SUBJECTS = {"cosine": Cosine, "linear": Linear, "wsd": Wsd, "inverse_root": InverseRoot}
