#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints data.js: the models and cluster files that the planner in a browser offers.

    make_data.py MODELS.json CLUSTER.yaml ...
"""
import json
import pathlib
import re
import sys


def cluster(path):
    text = path.read_text()
    title = re.search(r"^name: *(.*?) *$", text, re.MULTILINE).group(1).strip("\"'")
    return {"title": title, "text": text, "gpu": not path.stem.startswith("cpu")}


def main():
    models = json.loads(pathlib.Path(sys.argv[1]).read_text())
    paths = [pathlib.Path(path) for path in sys.argv[2:]]
    data = {"models": models, "clusters": {path.stem: cluster(path) for path in paths}}
    print(f"'use strict';\nconst plannerData = {json.dumps(data)};")


if __name__ == "__main__":
    main()
