#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/timeline.svg: the planned timeline of a training step above the measured one.

    docs/figures/timeline.py       with echelon on PATH, on a machine with two idle cores

Trains a small GPT-2 on two stages (1F1B, four micro-batches of each step) with log.trace, and takes
the picture out of the page that `echelon report` writes.
"""
import pathlib
import re
import subprocess
import tempfile

RUN = """
model: {architecture: gpt2, hidden_size: 128, num_hidden_layers: 6, num_attention_heads: 4}
data: {train: text, sequence_length: 128}
training: {steps: 12, global_batch_size: 16, micro_batch_size: 4}
optimizer: {learning_rate: 1e-3}
parallel: {pipeline: 2, schedule: 1f1b, comm: local, threads: 1}
log: {directory: run, trace: true, trace_steps: 12, every: 4}
checkpoint: {every: 0}
"""
PICTURE = pathlib.Path(__file__).resolve().parents[1] / "timeline.svg"


def main():
    with tempfile.TemporaryDirectory() as folder:
        def run(*words):
            subprocess.run(["echelon", *words], cwd=folder, check=True)

        path = pathlib.Path(folder)
        (path / "run.yaml").write_text(RUN)
        (path / "text.txt").write_text(pathlib.Path(__file__).read_text() * 40)
        run("data", "text.txt", "text")
        run("train", "run.yaml", "--ranks", "2")
        run("report", "run")
        page = (path / "run/report.html").read_text()
        picture = re.search(r'<svg[^>]*aria-label="Predicted; Measured".*?</svg>', page, re.S)
        PICTURE.write_text(picture[0] + "\n")


if __name__ == "__main__":
    main()
