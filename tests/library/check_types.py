#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mypy accepts the package, and finds wrong keys and values in a user's script; skips (77) without
mypy.

    check_types.py
"""
import os
import pathlib
import sys
import tempfile

try:
    from mypy import api
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = '''\
import echelon
settings: echelon.Keys = {"training.steps": 10, "optimizer.name": "adamw"}
run = echelon.Run("run.yaml", strategy=echelon.Grid(tensor=2), **settings)
run = echelon.Run("run.yaml", strategy=echelon.Grid(tensor=2), **{"training.steps": 10})
run["training.steps"] = 20
run["parallel.partition"] = [1, 2]
with run.train() as training:
    loss: float = training.step()["loss"]
wrong: echelon.Keys = {"training.stepz": 10}
worse: echelon.Keys = {"training.steps": "ten"}
run["training.steps"] = "ten"
run["training.stepz"] = 20
run["parallel.comm"] = "smoke signals"
'''
WRONG = [9, 10, 11, 12, 13]  # lines


def check(*words):
    """mypy's errors."""
    out, problem, _ = api.run([*words, "--config-file", str(ROOT / "pyproject.toml"),
                               "--cache-dir", os.devnull, "--no-error-summary"])
    if problem:
        sys.exit(problem)
    return [line for line in out.splitlines() if " error: " in line]


def main():
    errors = check(str(ROOT / "python" / "echelon"))
    if errors:
        sys.exit("\n".join(errors))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "script.py"
        path.write_text(SCRIPT)
        os.environ["MYPYPATH"] = str(ROOT / "python")
        errors = check(str(path))
    lines = sorted({int(line.split(":")[1]) for line in errors})
    if lines != WRONG:
        sys.exit("\n".join([f"errors in the lines {lines}, not {WRONG}:", *errors]))
    print("mypy accepts the package, and finds 5 wrong lines of a script")


if __name__ == "__main__":
    main()
