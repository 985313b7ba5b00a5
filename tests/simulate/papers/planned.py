# SPDX-License-Identifier: Apache-2.0
"""Runs `echelon plan --json` for the GPT models of NVIDIA's papers."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS, VOCABULARY = 2048, 51200
RUN = f"""
model: {{architecture: gpt2, vocab_size: {VOCABULARY}, max_position_embeddings: {TOKENS},
        resid_pdrop: 0.1, embd_pdrop: 0.1, attn_pdrop: 0.1}}
data: {{train: synthetic, sequence_length: {TOKENS}}}
training: {{steps: 1}}
precision: {{compute: fp16}}
optimizer: {{learning_rate: 1e-4}}
log: {{directory: none}}
"""


# Each layer keeps its input, as in NVIDIA's scripts.
FULL = ["memory.recompute=full", "memory.recompute_blocks=1"]


class Planner:
    """Plans with one cluster file. Use it in a `with` statement."""

    def __init__(self, echelon, cluster):
        self.echelon, self.cluster = echelon, os.path.join(HERE, cluster)
        self.folder = tempfile.TemporaryDirectory()

    def __enter__(self):
        self.run_file = os.path.join(self.folder.name, "run.yaml")
        with open(self.run_file, "w", encoding="utf-8") as file:
            file.write(RUN)
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def plan(self, gpus, heads, width, layers, words):
        words = [self.echelon, "plan", self.run_file, "--json", "--ranks", str(gpus), "--cluster",
                 self.cluster, f"model.hidden_size={width}", f"model.num_hidden_layers={layers}",
                 f"model.num_attention_heads={heads}"] + words
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"FAILED: {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)


def grid(tensor, pipeline, chunks, batch, micro_batch):
    """Words of a run with tensor and pipeline parallelism; the rest of the GPUs are replicas."""
    schedule = ([f"parallel.virtual_stages={chunks}", "parallel.schedule=interleaved"]
                if chunks > 1 else ["parallel.schedule=1f1b"])
    return [f"parallel.tensor={tensor}", f"parallel.pipeline={pipeline}",
            f"training.global_batch_size={batch}",
            f"training.micro_batch_size={micro_batch}"] + schedule


def flops(width, layers, batch):
    """Equation 3 of Narayanan et al. 2021: recomputation and all scores of attention are
    counted."""
    return 96 * batch * TOKENS * layers * width**2 * (1 + TOKENS / (6 * width) +
                                                      VOCABULARY / (16 * layers * width))


def finish(wrong):
    for line in wrong:
        print("FAILED:", line)
    sys.exit(1 if wrong else 0)
