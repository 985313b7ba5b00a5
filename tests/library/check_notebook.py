#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes examples/tutorial.ipynb in an empty folder, and checks that the notebook has kept its
outputs; skips (77) without nbclient, ipykernel and NumPy.

    check_notebook.py ECHELON LIBRARY            checks
    check_notebook.py ECHELON LIBRARY --write    also keeps the outputs
"""
import os
import pathlib
import sys
import tempfile

try:
    import ipykernel
    import nbclient
    import nbformat
    import numpy
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"


def execute(notebook):
    """Fails if a cell raises. The kernel is this Python."""
    program, library = (os.path.abspath(path) for path in sys.argv[1:3])
    os.environ["ECHELON_LIBRARY"] = library
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    os.environ["PATH"] = os.path.dirname(program) + os.pathsep + os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3",
                                resources={"metadata": {"path": folder}}).execute()
        return folder


def tidy(notebook, folder):
    """Without times and the folder's name."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = output["text"].replace(folder + os.sep, "")


def texts(notebook):
    """The text of each cell's outputs."""
    found = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        found.append("".join(output.get("text", "") + str(output.get("data", ""))
                             for output in outputs))
    return found


def main():
    kept = nbformat.read(NOTEBOOK, as_version=4)
    fresh = nbformat.read(NOTEBOOK, as_version=4)
    folder = execute(fresh)
    tidy(fresh, folder)
    if "--write" in sys.argv:
        nbformat.write(fresh, NOTEBOOK)
        kept = fresh
    for number, (before, now) in enumerate(zip(texts(kept), texts(fresh))):
        if bool(before) != bool(now):
            sys.exit(f"{NOTEBOOK}: cell {number} has not kept its output: run this with --write")
        if folder in now or str(ROOT) in before:
            sys.exit(f"{NOTEBOOK}: the output of cell {number} has this machine's paths")
    shown = "".join(texts(fresh))
    for part in ("<svg", "did you mean training.steps", "resumed at step", "plus 4 is"):
        if part not in shown:
            sys.exit(f"{NOTEBOOK}: no output has {part!r}")
    print(f"{len(fresh.cells)} cells executed; numpy {numpy.__version__}, "
          f"ipykernel {ipykernel.__version__}")


if __name__ == "__main__":
    main()
