# SPDX-License-Identifier: Apache-2.0
"""Dropout (Srivastava et al. 2014) in all places of a GPT-2, by numbers of Philox: the mask follows
from seed, step, layer, site and the element's index in the whole batch's tensor, on any layout."""
import functools

import models
import noise
import numpy as np

KEEP = {"embedding": 0.9, "attention": 0.8, "feed_forward": 0.8, "probabilities": 0.7}
SITES = {"embedding": 0, "attention": 0, "feed_forward": 1, "probabilities": 64}


class Dropout:
    model, ranks = "gpt2", 2
    options = {"model.embd_pdrop": 0.1, "model.resid_pdrop": 0.2, "model.attn_pdrop": 0.3}

    @classmethod
    def replay(cls, case, wrong):
        w = case.start
        for step in range(case.steps):
            def drop(x, what, layer):
                block = 0 if what == "embedding" else layer + 1
                elements = np.arange(x.data.size).reshape(x.shape)
                random = noise.uniforms(1, step + wrong, block, SITES[what], elements)
                return x * ((random >= 1 - KEEP[what]) / KEEP[what])

            loss, g = case.loss_and_gradient(w, step, functools.partial(models.gpt2, drop=drop))
            w = {name: x - case.rate * g[name] for name, x in w.items()}
            yield step + 1, w | {"metrics.loss": loss}


SUBJECTS = {"dropout": Dropout}
