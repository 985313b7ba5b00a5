# SPDX-License-Identifier: Apache-2.0
"""ZeRO's Table 1 (Rajbhandari et al. 2020, arXiv:1910.02054) as `echelon plan` says it: GB of model
states on each of N devices.

    python bench/zero_table.py [--program build/release/echelon] [--stages 1,2,3]

Each cell is one plan; none is run. Models have GPT-2's shape, weights and gradients bf16, masters
and AdamW's moments fp32. tests/app/test_zero_table.c compares the cells with the paper's. """
import argparse
import json
import pathlib
import subprocess
import tempfile

import report

MODELS = (
    ("7.5B", 23, 5120, 40),
    ("128B", 125, 9216, 72),
    ("1T", 127, 25600, 200),
)  # layers, width, heads
DEVICES = (1, 4, 16, 64, 256, 1024)


def states(program, run, devices, stage, layers, width, heads):
    """GB on rank 0: parameters, optimizer states and gradients, without padding and what is under
    way."""
    words = [
        program,
        "plan",
        run,
        "--json",
        "--ranks",
        str(devices),
        f"parallel.data={devices}",
        f"parallel.zero={stage}",
        f"training.global_batch_size={devices}",
        f"model.num_hidden_layers={layers}",
        f"model.hidden_size={width}",
        f"model.num_attention_heads={heads}",
    ]
    plan = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    return sum(plan["plans"][0]["memory"]["model_states_bytes"].values()) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/echelon", type=pathlib.Path)
    parser.add_argument("--stages", default="1,2,3")
    options = parser.parse_args()
    stages = options.stages.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = folder / "run.yaml"
        (folder / "text.txt").write_text("a text\n" * 4096)
        run.write_text(
            "model: {architecture: gpt2, vocab_size: 50304}\n"
            f"data: {{train: {folder / 'text.txt'}, tokenizer: bytes, sequence_length: 1024}}\n"
            "training: {steps: 10, micro_batch_size: 1}\n"
            "optimizer: {learning_rate: 1e-3}\n"
            "precision: {compute: bf16, gradients: compute}\n"
            f"log: {{directory: {folder / 'run'}}}\n"
            "memory: {device_limit: 100000TiB}\n"
        )
        rows = []
        for devices in DEVICES:
            cells = [states(options.program.resolve(), run, devices, stage, *shape)
                     for _, *shape in MODELS for stage in stages]
            rows.append(
                (devices, *(f"{cell:.4g}" if cell < 1000 else f"{cell:.0f}" for cell in cells))
            )
        report.title("GB of model states on each device")
        report.table(
            ("devices", *(f"{model[0]}, stage {stage}" for model in MODELS for stage in stages)),
            rows,
        )


if __name__ == "__main__":
    main()
