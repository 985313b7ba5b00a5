#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# TensorBoard reads the scalars of metrics.jsonl, every step once. This holds, too, for a run that
# was interrupted after its last checkpoint and started again.
#     check_tensorboard.py ECHELON
import json
import math
import os
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

RUN = """
model: {architecture: gpt2, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2}
data: {train: text-train, valid: text-valid, sequence_length: 16}
training: {steps: 9, global_batch_size: 4, validate_every: 3}
optimizer: {learning_rate: 1e-3}
parallel: {comm: local, threads: 1}
checkpoint: {every: 4}
log: {directory: runs/one}
"""
SCALARS = {
    "loss/train": "loss",
    "optimizer/learning_rate": "learning_rate",
    "optimizer/grad_norm": "grad_norm",
    "speed/tokens_per_second": "tokens_per_second",
    "speed/step_seconds": "step_seconds",
    "run/tokens": "tokens",
}


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def read_lines():
    with open("runs/one/metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)


def check(steps, restarts_of):
    lines = read_lines()
    trained = [line for line in lines if "loss" in line]
    assert [line["step"] for line in trained] == list(range(1, steps + 1))
    events = EventAccumulator("runs/one", size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    for tag, key in SCALARS.items():
        points = events.Scalars(tag)
        assert [p.step for p in points] == [line["step"] for line in trained], (tag, points)
        assert all(near(p.value, line[key]) for p, line in zip(points, trained)), tag
    points = events.Scalars("loss/validation")
    wanted = [line for line in lines if "valid_loss" in line]
    assert [p.step for p in points] == [line["step"] for line in wanted], points
    assert all(near(p.value, line["valid_loss"]) for p, line in zip(points, wanted))
    bits = events.Scalars("loss/validation_bits_per_byte")
    assert all(near(p.value, line["valid_bits_per_byte"]) for p, line in zip(bits, wanted,
                                                                            strict=True))
    assert [p.value for p in events.Scalars("run/restarts")] == restarts_of(trained)
    assert all(p.value > 0 for p in events.Scalars("memory/arena_gib"))
    assert all(p.value > 0 for p in events.Scalars("memory/process_gib"))
    starts = events.Tensors("start")
    assert b"after step" in starts[-1].tensor_proto.string_val[0]
    assert b"hidden_size: 16" in events.Tensors("run file")[-1].tensor_proto.string_val[0]


def main():
    echelon = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("text", "w", encoding="utf-8") as file:
            file.write("a line of text, and another one\n" * 200)
        with open("run.yaml", "w", encoding="utf-8") as file:
            file.write(RUN)
        run(echelon, "data", "text", "text", "--valid", "0.1")
        run(echelon, "train", "run.yaml", "training.steps=7")
        check(7, lambda trained: [0.0] * 7)
        # As if it had been killed in step 7, with a torn record, and its last checkpoint were lost.
        run("rm", "-rf", "runs/one/checkpoints/step-00000007")
        name = [n for n in os.listdir("runs/one") if n.startswith("events.")][0]
        path = os.path.join("runs/one", name)
        os.truncate(path, os.path.getsize(path) - 5)
        run(echelon, "train", "run.yaml")
        check(9, lambda trained: [0.0] * 4 + [1.0] * 5)
        events = [n for n in os.listdir("runs/one") if n.startswith("events.")]
        assert len(events) == 2, events
        run("rm", "-rf", "runs/two")
        run(echelon, "train", "run.yaml", "log.directory=runs/two", "log.tensorboard=false",
            "training.steps=1")
        assert not [n for n in os.listdir("runs/two") if n.startswith("events.")]


main()
