# SPDX-License-Identifier: Apache-2.0
"""Gates of experts in a Mixtral: top-k (Jiang et al. 2024), Switch (Fedus et al. 2021), GShard
(Lepikhin et al. 2020), noisy top-k and its hierarchy (Shazeer et al. 2017), biased sigmoids
(DeepSeek-AI 2024) and all experts.

A gate returns what each expert's output is multiplied by, (B, T, E), and the layer's losses by
name. A balance group is `group` consecutive samples; losses are means over groups.
"""
import functools

import models
import noise
import numpy as np
import tape

EXPERTS, SEED = 4, 1


class Moe:
    """Plain SGD, on two ranks that share out the experts."""
    model, ranks, group, auxiliary, capacity = "mixtral", 2, 1, 0.3, 0.0

    def __init__(self, wrong=False):
        self.wrong = wrong

    @classmethod
    def replay(cls, case, wrong):
        self, w = cls(wrong), case.start
        for step in range(case.steps):
            self.step, self.counts, self.losses = step, {}, {}
            model = functools.partial(models.llama, feed_forward=self.feed_forward)
            loss, g = case.loss_and_gradient(w, step, model)
            w = {name: x - case.rate * g[name] for name, x in w.items()}
            self.commit(w)
            yield step + 1, w | {"metrics.loss": loss} | \
                {f"metrics.router_{noun}_loss": x for noun, x in self.losses.items()}

    def commit(self, w):
        """Changes what is kept and not trained."""

    def feed_forward(self, p, at, x):
        at += "block_sparse_moe."
        logits = x @ p[at + "gate.weight"].T
        weights, losses = self.gate(p, at, x, logits)
        for noun, loss in losses.items():
            self.losses[noun] = self.losses.get(noun, 0) + loss.data
        out = 0.0
        for e in range(weights.shape[2]):
            w1, w2, w3 = (p[f"{at}experts.{e}.w{i}.weight"] for i in (1, 2, 3))
            inside = self.drop(at, e, models.silu(x @ w1.T) * (x @ w3.T), not self.wrong)
            y = self.drop(at, e, inside @ w2.T, self.wrong)
            out = out + weights[:, :, e:e + 1] * y
        return out, sum(losses.values())

    def drop(self, at, e, x, here):
        """What is left of expert e's numbers x (B, T, width), if dropout is `here`."""
        return x

    def room(self, chosen, choices):
        """Which choices (B, T, k) find room: first ones before second ones, in the rows' order."""
        if self.capacity == 0:
            return np.ones(choices.shape, bool)
        groups = choices.reshape(-1, self.group * choices.shape[1], choices.shape[2])
        most = int(self.capacity * chosen * groups.shape[1] / EXPERTS)
        fits = np.zeros(groups.shape, bool)
        for group, fit in zip(groups, fits):
            taken = np.zeros(EXPERTS, int)
            for k in range(groups.shape[2]):
                for row in range(groups.shape[1]):
                    fit[row, k] = taken[group[row, k]] < most
                    taken[group[row, k]] += 1
        assert not fits.all(), "nothing is dropped"
        return fits.reshape(choices.shape)

    def by_group(self, x):
        """(B, T, E) to (groups, rows, E)."""
        return x.reshape(-1, self.group * x.shape[1], x.shape[2])

    def balance(self, probabilities, chosen):
        """E times the sum of f P, f the share of rows that choose an expert."""
        f = self.by_group(chosen).mean(1)
        p = self.by_group(probabilities).mean(1)
        scale = self.auxiliary * EXPERTS * (1.1 if self.wrong else 1)
        return {"auxiliary": scale * (p * f).sum(1).mean()}


def largest(numbers, count):
    """The places of the largest numbers of each row, largest first, and a mask of them."""
    places = np.argsort(-numbers, axis=-1, kind="stable")[..., :count]
    return places, marked(places, numbers.shape)


def marked(places, shape, which=None):
    mask = np.zeros(shape)
    np.put_along_axis(mask, places, 1.0 if which is None else which.astype(float), -1)
    return mask


def only(numbers, mask):
    """Minus infinity where the mask is 0."""
    return numbers + np.where(mask > 0, 0, -np.inf)


class TopK(Moe):
    """Mixtral's, with a capacity and balance groups of two samples."""
    group, capacity = 2, 1.0
    options = {"model.router_aux_loss_coef": 0.3, "model.moe_capacity_factor": 1,
               "model.moe_group_samples": 2, "training.micro_batch_size": 2}

    def gate(self, p, at, x, logits):
        places, chosen = largest(logits.data, 2)
        kept = marked(places, logits.shape, self.room(2, places))
        return tape.softmax(only(logits, chosen)) * kept, \
            self.balance(tape.softmax(logits), chosen)


class ExpertDropout(Moe):
    """Inside of each expert, between its products (Fedus et al. 2021, section 2.4). The numbers are
    those of a token's choice, and of the column. The wrong replay drops what an expert makes."""
    options = {"model.moe_dropout": 0.4, "model.moe_bound": 1, "parallel.expert": 2}

    def gate(self, p, at, x, logits):
        self.places, chosen = largest(logits.data, 2)
        return tape.softmax(only(logits, chosen)), {}

    def drop(self, at, e, x, here):
        if not here:
            return x
        rows = np.arange(x.data[..., 0].size).reshape(x.shape[:2])
        choices = rows * 2 + np.argmax(self.places == e, -1)
        elements = choices[..., None] * x.shape[2] + np.arange(x.shape[2])
        random = noise.uniforms(SEED, self.step, int(at.split(".")[2]) + 1, 0, elements)
        return x * ((random >= 0.4) / 0.6)


class ExpertDropoutByColumns(ExpertDropout):
    """The same where tensor ranks share out the columns."""
    ranks = 4
    options = ExpertDropout.options | {"parallel.tensor": 2}


class Switch(Moe):
    """The loss counts before the capacity; what is dropped passes by the residual sum."""
    model, capacity = "switch", 1.0
    options = {"model.router_aux_loss_coef": 0.3, "model.moe_capacity_factor": 1,
               "parallel.expert": 2}

    def gate(self, p, at, x, logits):
        probabilities = tape.softmax(logits)
        places, chosen = largest(logits.data, 1)
        kept = marked(places, logits.shape, self.room(1, places))
        return probabilities * kept, self.balance(probabilities, chosen)


class GShard(Moe):
    """Algorithm 1: the second choice is taken with the probability 2 g2, counts always rise, and
    the loss is of first choices, over the number of experts."""
    model = "gshard"
    options = {"model.router_aux_loss_coef": 0.9, "model.moe_capacity_factor": 1,
               "parallel.expert": 2}

    def gate(self, p, at, x, logits):
        g = tape.softmax(logits)
        places, chosen = largest(logits.data, 2)
        first = marked(places[..., :1], logits.shape)
        pair = g * chosen / (g * chosen).sum(-1, keepdims=True)
        layer, (samples, tokens) = int(at.split(".")[2]), places.shape[:2]
        rows = np.arange(samples * tokens).reshape(samples, tokens)
        random = noise.uniforms(SEED, self.step, layer + 1, 0, rows)
        kept = np.zeros(logits.shape)
        for b in range(samples):
            taken, most = np.zeros(EXPERTS, int), 2 * tokens // EXPERTS
            for k in range(2):
                for t in range(tokens):
                    e = places[b, t, k]
                    kept[b, t, e] = taken[e] < most and (
                        k == 0 or 2 * pair.data[b, t, e] > random[b, t])
                    taken[e] += 1
        loss = (first.mean(1) * g.mean(1)).sum(1).mean() * (1 / EXPERTS)
        return pair * kept, {"auxiliary": (0.9 if not self.wrong else 1.0) * loss}


class NoisyTopK(Moe):
    """H = x Wg + normal softplus(x Wn); losses of importance and load."""
    model = "noisy_topk"
    options = {"model.router_importance_coef": 0.2, "model.router_load_coef": 0.3}

    def gate(self, p, at, x, logits):
        spread = tape.softplus(x @ p[at + "noise.weight"].T)
        layer = int(at.split(".")[2])
        normals = noise.normals(SEED, self.step, layer + 1, 0,
                                np.arange(logits.data.size).reshape(logits.shape))
        gates, load = self.noisy(logits, spread, normals, 2)
        return gates, {"importance": 0.2 * self.variation(gates),
                       "load": 0.3 * self.variation(load)}

    def noisy(self, logits, spread, normals, count):
        h = logits + spread * normals
        places, chosen = largest(h.data, count + 1)
        chosen = marked(places[..., :count], h.shape)
        inside, outside = (np.take_along_axis(h.data, places[..., i:i + 1], -1)
                           for i in (count, count - 1))
        rows = np.indices(h.shape)
        threshold = h[(*rows[:-1], np.where(chosen > 0, places[..., count:count + 1],
                                            places[..., count - 1:count]))]
        assert np.array_equal(threshold.data, np.where(chosen > 0, inside, outside))
        load = tape.normal_cdf((logits - threshold) / spread)
        return tape.softmax(only(h, chosen)), load

    def variation(self, x):
        """The squared coefficient of variation of the experts' sums over a group."""
        sums = self.by_group(x).sum(1)
        mean = sums.mean(1, keepdims=True)
        count = EXPERTS - 1 if self.wrong else EXPERTS
        return (((sums - mean) ** 2).sum(1) * (1 / count) / mean.reshape(-1) ** 2).mean()


class Bias(Moe):
    """Sigmoids; a bias that the choice alone reads follows the counts of a step."""
    model = "bias"
    options = {"model.router_bias_rate": 0.05, "training.steps": 8,
               "optimizer.learning_rate": 0.05}

    def gate(self, p, at, x, logits):
        scores = tape.sigmoid(logits)
        biased = scores.data + p[at + "gate.e_score_correction_bias"].data
        pairs = biased.reshape(*biased.shape[:2], 2, 2).sum(-1)  # the two best of each group of two
        _, groups = largest(pairs, 1)
        biased = np.where(np.repeat(groups, 2, -1) > 0, biased, -np.inf)
        _, chosen = largest(biased, 2)
        self.counts[at] = chosen.sum((0, 1))
        kept = scores * chosen
        return kept / kept.sum(-1, keepdims=True) * 1.5, {}

    def commit(self, w):
        for at, counts in self.counts.items():
            rate = 0.06 if self.wrong else 0.05
            w[at + "gate.e_score_correction_bias"] = w[at + "gate.e_score_correction_bias"] + \
                rate * np.sign(counts.mean() - counts)


class Dense(Moe):
    """All experts by the softmax over all, as where the k largest are all there are."""
    model = "dense"
    options = {"model.moe_gate": "dense"}

    def gate(self, p, at, x, logits):
        return tape.softmax(logits * (1.01 if self.wrong else 1)), {}


SUBJECTS = {"moe_topk": TopK, "moe_dropout": ExpertDropout,
            "moe_dropout_by_columns": ExpertDropoutByColumns, "moe_switch": Switch,
            "moe_gshard": GShard,
            "moe_noisy_topk": NoisyTopK, "moe_bias": Bias, "moe_dense": Dense}
