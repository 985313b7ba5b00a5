#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeded faults: applies faults to a copy of the source tree and expects a test to fail by each.

    tests/faults/run.py --all             every fault
    tests/faults/run.py --count 60 --seed 7   sixty, drawn by the seed 7
    tests/faults/run.py --id ID ...       these; an id may be a pattern such as schedule/*
    tests/faults/run.py --all --share 0-5/32  by the cases that the everyday suite runs
    tests/faults/run.py --check           applies all patches, and compiles nothing
    tests/faults/run.py --draw 20 --seed 7    proposes twenty new ones, drawn by the seed 7
    tests/faults/run.py --find 20 --seed 7    looks for a test that catches each of these
    tests/faults/run.py --find-for FILE   looks for a test for each fault of a file

records.py explains the lists. A run copies the tree into build/faults and never writes elsewhere.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import os
import pathlib
import queue
import random
import sys
import time

import records
import scratch

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIMIT_S = 90
GOOD = ("caught", "equivalent")
ORDER = ("caught", "equivalent", "survived", "late", "uncompilable", "unknown", "stale", "baseline")
MEANING = {
    "survived": "the test passes with the fault: name another test, or write one",
    "late": "the test does not end in time: name a quicker one, or one of fewer cases",
    "uncompilable": "the fault does not compile: rewrite it",
    "unknown": "there is no such test, or this build cannot run it",
    "stale": "the patch no longer applies: rewrite it for the code as it is now",
    "baseline": "the test does not pass without the fault",
}


def chosen(faults, arguments):
    if arguments.count:
        count = min(arguments.count, len(faults))
        return sorted(random.Random(arguments.seed).sample(faults, count), key=lambda f: f.id)
    if arguments.id:
        for wanted in arguments.id:
            if not any(fnmatch.fnmatch(fault.id, wanted) for fault in faults):
                sys.exit(f"faults: no fault is named {wanted}")
        return [f for f in faults if any(fnmatch.fnmatch(f.id, wanted) for wanted in arguments.id)]
    return faults


class Baselines:
    """What tests give without a fault; each is run once."""

    def __init__(self, limit_s):
        self.known, self.limit_s = {}, limit_s

    def of(self, tree, fault):
        key = (fault.test, tuple(sorted(fault.variables.items())))
        if key not in self.known:
            error = tree.make([fault.test])
            if error:
                self.known[key] = ("baseline", f"the build fails without a fault: {error}")
            else:
                result, seconds, output = tree.test(fault.test, fault.variables,
                                                    self.limit_s)
                verdict = {"passed": None, "skipped": "unknown",
                           "late": "late"}.get(result, "baseline")
                self.known[key] = (verdict, output[-1500:] if verdict == "baseline" else "")
        return self.known[key]


def try_fault(tree, fault, baselines):
    """Returns (verdict, details)."""
    path = tree.source / fault.file
    try:
        text = path.read_text()
        changed = records.apply(fault, text)
    except (OSError, records.FaultError) as error:
        return "stale", str(error)
    if fault.test:
        if not tree.tests.get(fault.test):
            return "unknown", f"{fault.test} is not among the tests of this build"
        verdict, details = baselines.of(tree, fault)
        if verdict:
            return verdict, details
    try:
        tree.write(fault.file, changed)
        room = fault.id.partition("/")[0]
        error = tree.make([fault.test]) if fault.test else tree.make_room(room)
        if error:
            return "uncompilable", error
        if fault.reason:
            return "equivalent", fault.reason
        result, _, _ = tree.test(fault.test, fault.variables, baselines.limit_s)
        return {"failed": "caught", "passed": "survived", "late": "late"}.get(result, "unknown"), ""
    finally:
        tree.write(fault.file, text)


def report(number, count, fault, verdict, details, seconds):
    print(f"{number:4}/{count} {verdict:12} {fault.id:44} {fault.test or '-':32} {seconds:5.1f} s",
          flush=True)
    if verdict not in GOOD:
        print(f"         {fault.place}: {MEANING[verdict]}")
        for line in details.strip().split("\n"):
            print(f"         {line}")


def run_faults(faults, trees, limit_s):
    """Tries faults on several trees beside each other, and prints what comes of them."""
    free, baselines = queue.Queue(), Baselines(limit_s)
    for tree in trees:
        free.put(tree)

    def job(fault):
        tree, begun = free.get(), time.monotonic()
        try:
            return fault, *try_fault(tree, fault, baselines), time.monotonic() - begun
        finally:
            free.put(tree)

    counts, begun = collections.Counter(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        pending = [pool.submit(job, fault) for fault in faults]
        try:
            for number, done in enumerate(concurrent.futures.as_completed(pending), 1):
                fault, verdict, details, seconds = done.result()
                counts[verdict] += 1
                report(number, len(faults), fault, verdict, details, seconds)
        except BaseException:
            for waiting in pending:
                waiting.cancel()
            raise
    always = ("caught", "equivalent", "survived", "stale")
    print(", ".join(f"{counts[v]} {v}" for v in ORDER if counts[v] or v in always) +
          f" in {time.monotonic() - begun:.0f} s")
    return all(v in GOOD for v in counts)


def prepare(arguments):
    trees = [scratch.Scratch(arguments.root, arguments.scratch / str(i + 1), arguments.compilers,
                             arguments.cmake) for i in range(arguments.jobs)]
    for tree in trees:
        tree.folder.mkdir(parents=True, exist_ok=True)
        error = tree.prepare()
        if error:
            sys.exit(f"faults: {error}")
        if arguments.share:
            tree.environment["ECHELON_SHARE"] = arguments.share
    return trees


def check_all(faults, root):
    errors = [error for error in (records.check(fault, root) for fault in faults) if error]
    for error in errors:
        print(error)
    print(f"{len(faults)} faults, {sum(bool(f.reason) for f in faults)} equivalent, "
          f"{len(errors)} stale")
    return not errors


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--all", action="store_true")
    what.add_argument("--count", type=int, metavar="N")
    what.add_argument("--id", nargs="+")
    what.add_argument("--check", action="store_true")
    what.add_argument("--draw", type=int, metavar="N")
    what.add_argument("--find", type=int, metavar="N")
    what.add_argument("--find-for", type=pathlib.Path, metavar="FILE",
                      help="as --find, for the records of a file whose last lines are test ?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", metavar="ROOM", help="where --draw and --find look")
    parser.add_argument("--effort", type=float, default=60,
                        help="seconds of tests that --find spends on a fault")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the source tree")
    parser.add_argument("--lists", type=pathlib.Path, help="the lists' folder (ROOT/tests/faults)")
    parser.add_argument("--scratch", type=pathlib.Path, help="a folder (ROOT/build/faults)")
    parser.add_argument("--jobs", type=int, default=1, help="faults that are tried at a time")
    parser.add_argument("--compilers", type=int, default=os.cpu_count(), help="compilers of each")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that a test may take")
    parser.add_argument("--share", metavar="I-J/N", help="of tests with many cases, for faults "
                        "whose records name none: 0-5/32 is the everyday suite's")
    parser.add_argument("--cmake", nargs="+", default=[], help="more options for cmake: -DNAME=X")
    arguments = parser.parse_args()
    scratch.end_when_told()
    arguments.root = arguments.root.resolve()
    arguments.lists = (arguments.lists or arguments.root / "tests/faults").resolve()
    arguments.scratch = (arguments.scratch or arguments.root / "build/faults").resolve()
    try:
        faults = records.read_lists(arguments.lists)
    except records.FaultError as error:
        sys.exit(f"faults: {error}")
    if arguments.check:
        sys.exit(not check_all(faults, arguments.root))
    if arguments.find_for:
        import find
        ids = {fault.id for fault in faults}
        wanted = [f for f in records.read_list(arguments.find_for) if f.id not in ids]
        if check_all(wanted, arguments.root):
            find.find(wanted, faults, prepare(arguments), arguments.lists, arguments.effort)
        return
    if arguments.draw or arguments.find:
        import mutate
        drawn = mutate.draw(arguments.root, arguments.seed, arguments.draw or arguments.find,
                            arguments.rooms, faults)
        if arguments.draw:
            print("\n".join(fault.text() for fault in drawn))
            return
        import find
        find.find(drawn, faults, prepare(arguments), arguments.lists, arguments.effort)
        return
    faults = chosen(faults, arguments)
    if not faults:
        sys.exit(f"faults: {arguments.lists} has none")
    sys.exit(not run_faults(faults, prepare(arguments), arguments.limit))


if __name__ == "__main__":
    main()
