# SPDX-License-Identifier: Apache-2.0
"""What the oracles share: files, runs of `echelon train` and the data that these read.

A subject is a class with `options` (keys of the run file), `ranks`, `model` (a name of `MODELS`)
and `replay(case, wrong)`. The replay generates pairs (step, tensors): the tensors that a checkpoint
of that step must hold, and as "metrics.KEY" the values that metrics.jsonl must hold. With `wrong`
the replay uses another constant, so the comparison must fail. """
import functools
import json
import pathlib
import struct
import subprocess

import models
import numpy as np
import tape

TOLERANCE = 1e-10
METRICS = "metrics."
SAMPLES, TOKENS = 8, 6
MODELS = {
    "gpt2": (models.gpt2_start, models.gpt2),
    "gpt2_deep": (lambda random: models.gpt2_start(random, models.SIZES | {"layers": 4}),
                  models.gpt2),
    "llama": (models.llama_start, models.llama),
    **{gate or "mixtral": (functools.partial(models.mixtral_start, gate=gate), None)
       for gate in (None, "switch", "gshard", "noisy_topk", "bias", "dense")},
}
DTYPES = {"F64": "<f8", "F32": "<f4", "U8": "u1", "I32": "<i4", "I64": "<i8"}


# ---- files (docs/formats.md) ----

def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            numbers = np.frombuffer(data[8 + length + begin:8 + length + end],
                                    DTYPES[entry["dtype"]])
            tensors[name] = numbers.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, x in tensors.items():
        data = x.astype("<f8").tobytes()
        header[name] = {"dtype": "F64", "shape": list(x.shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def write_tokens(prefix, tokens):
    """One sequence, which is one document, of tokens of type u8."""
    prefix.with_suffix(".bin").write_bytes(tokens.astype("u1").tobytes())
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQiqqq", 1, 1, 1, 2, len(tokens), 0, 0, 1))


# ---- runs ----

BASE = {
    "data.sequence_length": TOKENS, "training.global_batch_size": 4,
    "training.micro_batch_size": 1, "training.steps": 4, "optimizer.schedule": "constant",
    "optimizer.clip_norm": 0, "optimizer.name": "sgd", "optimizer.learning_rate": 0.1,
    "precision.compute": "fp64", "parallel.comm": "local", "parallel.threads": 1,
    "checkpoint.every": 1, "checkpoint.background": False, "log.tensorboard": False,
}


class Lab:
    """A folder with data and initial weights, in which runs are trained."""

    def __init__(self, echelon, folder):
        self.echelon, self.folder, self.starts = echelon, pathlib.Path(folder), {}
        random = np.random.default_rng(5)
        self.stream = random.integers(0, models.SIZES["vocabulary"], SAMPLES * TOKENS + 1)
        write_tokens(self.folder / "tokens", self.stream)
        for name, (start, _) in MODELS.items():
            weights, config = start(random)
            (self.folder / name).mkdir()
            (self.folder / name / "config.json").write_text(json.dumps(config))
            write_safetensors(self.folder / name / "model.safetensors", weights)
            self.starts[name] = weights

    def train(self, name, model, ranks, options):
        """Returns the run directory."""
        keys = BASE | {"model.init_from": str(self.folder / model),
                       "data.train": str(self.folder / "tokens"),
                       "log.directory": str(self.folder / "runs" / name)} | options
        run = {}
        for key, value in keys.items():
            section, word = key.split(".")
            if value is not None:  # None: a key of BASE that the run does not give
                run.setdefault(section, {})[word] = value
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(run))
        done = subprocess.run([self.echelon, "train", path, "--ranks", str(ranks)],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {done.stdout}{done.stderr}{path.read_text()}")
        return self.folder / "runs" / name

    @functools.cached_property
    def order(self):
        """Which sample stands at position g of a shuffled run: found, not computed.

        A run that reads one sample a step moves its weights by the gradient of that sample alone,
        so each step says which sample it was. An epoch must have each sample once.
        """
        count, rate = 8 * SAMPLES, 0.01
        run = self.train("order", "llama", 1, {
            "training.steps": count, "training.global_batch_size": 1,
            "optimizer.learning_rate": rate})
        order, weights = [], self.starts["llama"]
        for step in range(1, count + 1):
            after = checkpoint(run, step)
            for sample in range(SAMPLES):
                _, grads = gradient(models.llama, weights, self.sample([sample]))
                moved = {name: x - rate * grads[name] for name, x in weights.items()}
                if difference(moved, after)[0] < TOLERANCE:
                    order.append(sample)
                    break
            else:
                raise AssertionError(f"step {step} of plain SGD is of no sample")
            weights = after
        for epoch in range(0, count, SAMPLES):
            assert sorted(order[epoch:epoch + SAMPLES]) == list(range(SAMPLES)), order
        return order

    def sample(self, numbers):
        """Inputs and targets of samples of the stream."""
        rows = np.stack([self.stream[s * TOKENS:s * TOKENS + TOKENS + 1] for s in numbers])
        return rows[:, :-1], rows[:, 1:]


def checkpoint(run, step):
    folder = run / "checkpoints" / f"step-{step:08d}"
    tensors = read_safetensors(folder / "model" / "model.safetensors")
    state = folder / "state" / "state.safetensors"
    return tensors | (read_safetensors(state) if state.exists() else {})


def difference(ours, theirs):
    """The largest error of a tensor, relative to its largest number, and the tensor's name."""
    assert set(ours) == set(theirs), f"names differ: {sorted(set(ours) ^ set(theirs))}"
    worst = (0.0, "")
    for name, x in ours.items():
        y = np.asarray(theirs[name], dtype=np.float64)
        assert np.shape(x) == y.shape, f"{name}: {np.shape(x)} and {y.shape}"
        error = float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-30))
        worst = max(worst, (error if error == error else np.inf, name))
    return worst


def gradient(model, weights, batch, tokens=None):
    """Loss and gradients: sums over the batch's targets, over `tokens` (its own if not given)."""
    inputs, targets = batch
    leaves = {name: tape.Value(x) for name, x in weights.items()}
    logits, auxiliary = model(leaves, inputs)
    loss = models.losses(logits, targets) * (1 / (tokens or targets.size))
    grads = tape.gradients(loss + auxiliary, list(leaves.values()))
    return loss.data, dict(zip(leaves, grads))


class Case:
    """A subject's run beside what its replay needs."""

    def __init__(self, lab, subject, name):
        self.lab, self.subject, self.name = lab, subject, name
        self.options = BASE | subject.options
        self.start = lab.starts[subject.model]
        self.run = lab.train(name, subject.model, subject.ranks, subject.options)
        self.model = getattr(subject, "equations", None) or MODELS[subject.model][1]
        self.steps, self.batch = (self.options["training." + key]
                                  for key in ("steps", "global_batch_size"))
        self.rate = self.options["optimizer.learning_rate"]

    def positions(self, first, count):
        return self.lab.sample(self.lab.order[first:first + count])

    def loss_and_gradient(self, weights, step, model=None):
        """Of the whole batch of a step, counted from 0."""
        return gradient(model or self.model, weights,
                        self.positions(step * self.batch, self.batch))

    def step_gradient(self, weights, step):
        return self.loss_and_gradient(weights, step)[1]

    def rank_samples(self, step, rank, ranks):
        """Of data rank d of r: micro-batches q = d, d + r, ... of one sample each."""
        order = self.lab.order[step * self.batch:(step + 1) * self.batch]
        return self.lab.sample(order[rank::ranks])

    def at_start(self):
        """The checkpoint of a run of no steps."""
        run = self.lab.train(self.name + "-start", self.subject.model, self.subject.ranks,
                             self.subject.options | {"training.steps": 0})
        return checkpoint(run, 0)

    @functools.cached_property
    def metrics(self):
        """The objects of metrics.jsonl that are of training steps."""
        lines = [json.loads(line) for line in (self.run / "metrics.jsonl").open()]
        return {line["step"]: line for line in lines if "loss" in line}

    def error(self, wrong):
        """The largest error over all checkpoints, and where it is."""
        worst, count = (0.0, ""), 0
        for step, tensors in self.subject.replay(self, wrong):
            theirs = checkpoint(self.run, step)
            for name in tensors:
                if name.startswith(METRICS):
                    theirs[name] = self.metrics[step][name.removeprefix(METRICS)]
            error, name = difference(tensors, theirs)
            worst, count = max(worst, (error, f"{name}, step {step}")), count + 1
        assert count > 0, f"{self.name} compares nothing"
        return worst
