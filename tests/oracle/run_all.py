#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays in NumPy, from the papers' equations, what `echelon train` did in fp64.

    run_all.py ECHELON [--only SUBJECT] [--break SUBJECT]

Prints a line a subject: the largest error of a tensor of any checkpoint. Exits 1 if one is above
1e-10, or if a replay with a wrong constant is not told apart from the right one; 77 without NumPy.
--break replays a subject with its wrong constant, to show what a failure looks like.
"""
import argparse
import importlib
import sys
import tempfile

sys.dont_write_bytecode = True

try:
    import numpy  # noqa: F401
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

import oracle

FILES = ["tiny_gpt2", "compression", "apart", "versions", "pushes", "optimizers", "gates",
         "curves", "dropout"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("echelon")
    parser.add_argument("--only", action="append")
    parser.add_argument("--break", dest="broken", action="append", default=[])
    arguments = parser.parse_args()
    subjects = {}
    for name in FILES:
        subjects |= importlib.import_module(name).SUBJECTS
    for name in (arguments.only or []) + arguments.broken:
        if name not in subjects:
            parser.error(f"no subject is called {name}; there are {' '.join(subjects)}")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        lab = oracle.Lab(arguments.echelon, folder)
        for name in arguments.only or subjects:
            if not check(lab, name, subjects[name], name in arguments.broken):
                failed.append(name)
    if failed:
        sys.exit(f"{len(failed)} of {len(arguments.only or subjects)} failed: {' '.join(failed)}")


def check(lab, name, subject, broken):
    try:
        case = oracle.Case(lab, subject, name)
        error, place = case.error(broken)
        wrong, _ = case.error(True)
    except (AssertionError, RuntimeError) as reason:
        print(f"{name:24} FAILED: {reason}", flush=True)
        return False
    good = error <= oracle.TOLERANCE < wrong
    print(f"{name:24} {error:.1e}  (with a wrong constant {wrong:.1e})"
          f"{'' if good else f'  FAILED: {place}'}", flush=True)
    return good


if __name__ == "__main__":
    main()
