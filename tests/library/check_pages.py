#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes the Python of the documents on the package: each page's blocks one after the other, in a
folder with a book's tokens, a Hugging Face folder and the page's run file.

    check_pages.py ECHELON LIBRARY [PAGE ...]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:3])
ROOT = pathlib.Path(__file__).resolve().parents[2]
# And the least number of blocks that each has. Those above a heading "Echelon" are of another
# library.
PAGES = {"from_keras.md": 3, "from_torchtitan.md": 2, "from_hugging_face.md": 3, "library.md": 3}
RUN = """\
model: {architecture: gpt2, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4}
data: {train: data/book-train, valid: data/book-valid, sequence_length: 16}
training: {steps: 40, global_batch_size: 8, validate_every: 10}
optimizer: {learning_rate: 1e-3}
log: {directory: runs/first}
"""


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def prepare(folder, page):
    """Writes the files that pages name. A model folder is that of a checkpoint."""
    (folder / "book.txt").write_text("The quick brown fox jumps over a lazy dog. " * 200)
    (folder / "run.yaml").write_text(RUN)
    for words in (["data", "book.txt", "data/book", "--valid", "0.1"],
                  ["train", "run.yaml", "training.steps=1", "log.directory=first",
                   "parallel.comm=local"]):
        subprocess.run([PROGRAM, *words], cwd=folder, check=True, capture_output=True)
    shutil.copytree(folder / "first/checkpoints/step-00000001/model", folder / "gpt2")
    for text in blocks(page, "yaml"):
        name = re.match(r"# (\S+\.yaml)\n", text)
        if name:
            (folder / name[1]).write_text(text)


def check(name):
    """Returns the number of blocks that were executed. They share their variables."""
    page = (ROOT / "docs" / name).read_text()
    ours = blocks(page[max(page.find("\n## Echelon\n"), 0):], "python")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        prepare(folder, page)
        script = "\n".join(f"print('-- block {number}', flush=True)\n{text}"
                           for number, text in enumerate(ours))
        done = subprocess.run([sys.executable, "-c", script], cwd=folder, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | {"ECHELON_LIBRARY": LIBRARY,
                                                "PYTHONPATH": str(ROOT / "python")})
    if done.returncode != 0:
        sys.exit(f"docs/{name}:\n{done.stdout}")
    return len(ours)


def main():
    for name, least in PAGES.items():
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        found = check(name)
        if found < least:
            sys.exit(f"docs/{name} has {found} blocks of Python, and should have {least} or more")
        print(f"docs/{name}: {found} blocks")


if __name__ == "__main__":
    main()
