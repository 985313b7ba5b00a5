# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint that Echelon wrote with the safetensors package and compares every value.

    check_safetensors.py WRITE_CHECKPOINT

Exits 77 (skipped) where the package is missing.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import safetensors
except ImportError:
    print("skipped: this Python has no package 'safetensors'")
    sys.exit(77)

# Name -> (dtype, shape): the table in fixture.h.
MODEL = {
    "wte.weight": ("F32", [7, 6]),
    "norm.bias": ("F32", [5]),
    "half.weight": ("BF16", [3, 5]),
    "conv.weight": ("F64", [3, 2, 4, 3]),
    "empty": ("F32", [0, 3]),
}
STATE = {
    "wte.weight": ("F64", [7, 6]),
    "wte.weight.exp_avg": ("F32", [7, 6]),
    "batches": ("I64", []),
}
CODES = {"F32": "f", "F64": "d", "BF16": "H", "I64": "q"}
SEED = 1


def check_file(path, expected):
    with open(path, "rb") as file:
        data = file.read()
    tensors = dict(safetensors.deserialize(data))
    assert sorted(tensors) == sorted(expected), sorted(tensors)
    for name, (dtype, shape) in expected.items():
        tensor = tensors[name]
        assert tensor["dtype"] == dtype, (name, tensor["dtype"])
        assert list(tensor["shape"]) == shape, (name, tensor["shape"])
        raw = bytes(tensor["data"])
        count = len(raw) // struct.calcsize("<" + CODES[dtype])
        values = struct.unpack(f"<{count}{CODES[dtype]}", raw)
        first = 200 * len(name) + 10000 * SEED
        assert list(values) == [first + k for k in range(count)], name
        print(f"{path}: {name} {dtype} {shape}: {count} values")
    (length,) = struct.unpack("<Q", data[:8])
    assert (8 + length) % 4096 == 0, length
    header = json.loads(data[8 : 8 + length])
    assert header["__metadata__"] == {"format": "pt"}, header["__metadata__"]


def check_torch(path):
    """What transformers calls: every tensor as one of PyTorch."""
    try:
        import torch
        from safetensors.torch import load_file
    except ImportError:
        print("no PyTorch here: load_file is not tried")
        return
    tensors = load_file(path)
    wte = torch.arange(42, dtype=torch.float32).reshape(7, 6) + 200 * len("wte.weight") + 10000
    assert torch.equal(tensors["wte.weight"], wte)
    assert tensors["half.weight"].dtype == torch.bfloat16


def main():
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.argv[1], directory], check=True)
        step = os.path.join(directory, "step-00000001")
        model = os.path.join(step, "model", "model.safetensors")
        check_file(model, MODEL)
        check_file(os.path.join(step, "state", "state.safetensors"), STATE)
        check_torch(model)
        with open(os.path.join(step, "model", "config.json"), encoding="utf-8") as file:
            assert json.load(file) == {"model_type": "gpt2"}
        with open(os.path.join(step, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        assert manifest["version"] == 1 and manifest["ranks"] == 3, manifest


main()
