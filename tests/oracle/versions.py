# SPDX-License-Identifier: Apache-2.0
"""Updates by gradients of older weights: ZeRO-Offload's delayed update (Ren et al. 2021), PipeDream
(Narayanan et al. 2019) with weight stashing and vertical sync, PipeDream-2BW (2021)."""
from apart import MomentumState
from tiny_gpt2 import AdamState, clipped


class Delayed:
    """From step D on, W(t + 1) = W(t) - v g(W(t - 1)); norms are the whole model's."""
    model, ranks, begin = "gpt2", 1, 2
    options = {"memory.offload_delayed_from": 2, "memory.offload_optimizer": "host",
               "parallel.flush_every": 2, "checkpoint.every": 2, "training.steps": 8,
               "optimizer.name": "adamw", "optimizer.learning_rate": 0.01, "optimizer.eps": 1e-6,
               "optimizer.clip_norm": 0.7}

    @classmethod
    def replay(cls, case, wrong):
        w, before = case.start, case.start
        state = AdamState(case.start)
        for step in range(case.steps):
            late = step >= cls.begin + (1 if wrong else 0)
            g = clipped(case.step_gradient(before if late else w, step), 0.7)
            w, before = state.update(w, g, case.rate, eps=1e-6), w
            if (step + 1) % 2 == 0:
                yield step + 1, w | state.tensors() | \
                    {name + ".previous": x for name, x in before.items()}


class PipeDream:
    """Stage i of n (from 0) sees in step t the weights of t - (n - 1 - i), and none older than its
    span's first; each stage clips by its own norm."""
    model, ranks, vertical, span = "gpt2_deep", 4, False, 6
    options = {"parallel.schedule": "pipedream", "parallel.pipeline": 4,
               "parallel.partition": [1, 1, 1, 1], "parallel.flush_every": 6,
               "checkpoint.every": 6, "training.steps": 12, "training.global_batch_size": 1,
               "optimizer.momentum": 0.5, "optimizer.clip_norm": 0.4}

    @classmethod
    def replay(cls, case, wrong):
        stages, span = cls.ranks, cls.span
        versions, state = [case.start], MomentumState(case.start, 0.5)
        for step in range(case.steps):
            first = step // span * span
            seen = {}
            for name in case.start:
                late = stages - 1 - (0 if cls.vertical else stage_of(name, stages))
                seen[name] = versions[max(first, step - late + (1 if wrong else 0))
                                      if late else step][name]
            g = case.step_gradient(seen, step)
            for stage in range(stages):
                names = [name for name in g if stage_of(name, stages) == stage]
                g |= clipped({name: g[name] for name in names}, 0.4)
            versions.append(state.update(versions[step], g, case.rate))
            if (step + 1) % span == 0:
                yield step + 1, versions[-1] | state.tensors()


class VerticalSync(PipeDream):
    """All stages see the version that the first one sees."""
    vertical = True
    options = PipeDream.options | {"parallel.vertical_sync": True}


class TwoBuffers:
    """PipeDream-2BW: W(t + 1) = W(t) - v g(W(t - 1)), across spans, too."""
    model, ranks = "gpt2", 2
    options = {"parallel.schedule": "pipedream-2bw", "parallel.pipeline": 2,
               "parallel.partition": [1, 1], "parallel.flush_every": 3, "checkpoint.every": 3,
               "training.steps": 6, "optimizer.momentum": 0.5}

    @classmethod
    def replay(cls, case, wrong):
        w, before, state = case.start, case.start, MomentumState(case.start, 0.5)
        for step in range(case.steps):
            g = case.step_gradient(w if wrong else before, step)
            w, before = state.update(w, g, case.rate), w
            if (step + 1) % 3 == 0:
                yield step + 1, w | state.tensors() | \
                    {name + ".previous": x for name, x in before.items()}


def stage_of(name, stages):
    """One layer a stage; embeddings on the first, the last norm and the head on the last."""
    layer = [int(part) for part in name.split(".") if part.isdigit()]
    return layer[0] if layer else 0 if "wte" in name or "wpe" in name else stages - 1


SUBJECTS = {"delayed": Delayed, "pipedream": PipeDream, "vertical_sync": VerticalSync,
            "pipedream_2bw": TwoBuffers}
