#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the command lines of the documents, and compares what they print with what the page shows.

    run_docs.py BUILD [PAGE ...]            runs pages (all of them) with the programs of a build
    run_docs.py BUILD --update PAGE ...     writes what was printed into the pages
    run_docs.py --check [PAGE ...]          runs nothing: each command line has one of these forms

A block of commands is a fence of the kind console. Lines that begin with "$ " are commands, which
end after lines without a backslash at their end; the lines after a command are its output. A line
"..." stands for any number of lines. A command may use what the commands before it on the page have
written; each page has a folder of its own, with copies of examples/ and clusters/. A comment
before the block says more:

    <!-- before: COMMANDS -->       are run first; what they print is not compared
    <!-- exit: N -->                the last command ends with the code N, others with 0
    <!-- tolerance: 0.2 -->         relative difference that numbers may have (0.001)
    <!-- times: same -->            numbers with units of time and rates are compared, too
    <!-- fault: ID -->              the programs have this fault of tests/faults, and stderr counts;
                                    without the fault the same commands succeed
    <!-- not run: REASON -->        the block is not run, as it needs what a test does not have

Numbers with a unit of time or of a rate differ from machine to machine, and are not compared. Two
numbers below 1e-9 are rounding errors, and are the same. Instruction sets have any name. A load of
the machine at which a peak was measured is left out.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/faults"))
LIMIT_S = 1800
COMMAND = re.compile(
    r"^\s*(?:\$ |(?:[A-Z_]+=\S* )*(?:echelon|python3?|pip|cmake|ctest|mpirun|srun|sbatch|kubectl|"
    r"torchrun|bash|cc|export|bible|curl|sudo|apt|docker|podman|"
    r"(?:\./|venv/bin/|tools/|tests/|bench/|build/)\S+) )")
FENCE = re.compile(r"((?:^<!-- [^\n]*?(?:\n[^\n]+)*?-->\n+)*)"
                   r"^(```+)([^\n]*)\n(.*?)^\2\n", re.M | re.S)
NOTE = re.compile(r"<!-- ([a-z ]+): (.*?) ?-->", re.S)
NOTES = ("before", "exit", "tolerance", "times", "fault", "not run")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?:(?::\d\d)+)?")
UNIT = re.compile(r"[-\]) ]*(?:ms|us|s|h|min|days?|[kMGT]?tok(?:ens)?/s|[kMGT]?FLOP/s|"
                  r"[KMG]i?B/s)\b| ?%\)?(?= *$| *\|)")
LOAD = re.compile(r", peak measured at load [\d.]+")
ISA = re.compile(r"\b(portable|avx2|avx512|avx512bf16)\b")


class Block:
    def __init__(self, match, text):
        self.kind, self.text, self.at = match[3].strip(), match[4], match.start(4)
        self.line = text.count("\n", 0, match.start(2)) + 1
        self.notes = dict(NOTE.findall(match[1]))

    def commands(self):
        """Pairs of a command and its output's lines."""
        pairs, continues = [], False
        for line in self.text.splitlines():
            if continues:
                pairs[-1][0] += "\n" + line
            elif line.startswith("$ "):
                pairs.append([line[2:], []])
            elif pairs:
                pairs[-1][1].append(line)
                continue
            continues = line.endswith("\\")
        return pairs


def read_blocks(text):
    return [Block(match, text) for match in FENCE.finditer(text)]


# ---- comparison ----

def compare_words(shown, found, tolerance, timed):
    """Whether two lines are the same but for numbers within the tolerance. timed: times count."""
    shown, found = (" ".join(ISA.sub("ISA", LOAD.sub("", line)).split()) for line in (shown, found))
    if NUMBER.split(shown) != NUMBER.split(found):
        return False
    for a, b in zip(NUMBER.finditer(shown), NUMBER.finditer(found)):
        is_time = UNIT.match(shown, a.end()) or ":" in a[0] + b[0]
        if a[0] == b[0] or (is_time and not timed):
            continue
        if ":" in a[0] + b[0]:
            return False
        x, y = (float(m[0].replace(",", "")) for m in (a, b))
        if max(x, y) >= 1e-9 and abs(x - y) > tolerance * max(x, y):
            return False
    return True


def compare(shown, found, tolerance, timed):
    """Returns the first line of the page that the output lacks, or that it has too many; None: the
    two agree."""
    at, skips = 0, False
    for line in shown:
        if line.strip() == "...":
            skips = True
            continue
        while (skips and at < len(found) and
               not compare_words(line, found[at], tolerance, timed)):
            at += 1
        if at >= len(found) or not compare_words(line, found[at], tolerance, timed):
            return f"the page has: {line}\n    printed:      {found[at] if at < len(found) else ''}"
        at, skips = at + 1, False
    if not skips and at < len(found):
        return f"the page lacks: {found[at]}"
    return None


# ---- runs ----

def hear_interrupts():
    """Shells ignore them in what they start in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Folder:
    """Where a page's commands run."""

    def __init__(self, path, build):
        self.path, self.build = path, build
        for name in ("examples", "clusters", "include"):
            shutil.copytree(ROOT / name, path / name)
        for name in ("bench", "docs", "tests", "tools"):
            (path / name).symlink_to(ROOT / name)
        (path / "build").symlink_to(build.parent)

    def run(self, command, build, with_errors):
        programs = [str(build), str(build / "tests"), str(build / "bench"), os.environ["PATH"]]
        environment = {**os.environ, "PATH": ":".join(programs), "OMP_WAIT_POLICY": "passive",
                       "TERM": "dumb", "LC_ALL": "C.UTF-8", "ECHELON_LATTICE_FIRST": "yes"}
        done = subprocess.run(["bash", "-c", command], cwd=self.path, env=environment, text=True,
                              errors="replace", timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                              preexec_fn=hear_interrupts,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT if with_errors else subprocess.PIPE)
        output = done.stdout.replace(str(self.path) + "/", "")
        lines = [line.rpartition("\r")[2].rstrip() for line in output.rstrip().split("\n")]
        return done.returncode, lines if lines != [""] else [], done.stderr or output


class Faulty:
    """Programs with a seeded fault, one at a time."""

    def __init__(self):
        import records
        import scratch
        self.records, self.tree = records, scratch.Scratch(
            ROOT, ROOT / "build/faults/1", os.cpu_count())
        self.tree.folder.mkdir(parents=True, exist_ok=True)
        self.faults = {fault.id: fault for fault in records.read_lists(ROOT / "tests/faults")}
        error = self.tree.prepare()
        if error:
            sys.exit(f"run_docs: {error}")

    def build(self, name):
        """The folder of a build with the fault."""
        fault = self.faults[name]
        path = self.tree.source / fault.file
        text = path.read_text()
        try:
            self.tree.write(fault.file, self.records.apply(fault, text))
            error = self.tree.ninja(["echelon"]) or self.tree.make([fault.test])
            if error:
                sys.exit(f"run_docs: {name}: {error}")
        finally:
            self.tree.write(fault.file, text)
        return self.tree.build


def run_block(block, folder, build, problems, update):
    """Runs a block's commands; returns its text with what they have printed."""
    out = []
    tolerance = float(block.notes.get("tolerance", 1e-3))
    pairs = block.commands()
    if "before" in block.notes:
        code, _, errors = folder.run("set -e\n" + block.notes["before"], build, True)
        if code:
            problems.append((block, f"the commands before it end with {code}: {errors[-800:]}"))
            return block.text
    for i, (command, shown) in enumerate(pairs):
        code, found, errors = folder.run(command, build, "fault" in block.notes)
        wanted = int(block.notes.get("exit", 0)) if i == len(pairs) - 1 else 0
        if code != wanted:
            problems.append((block, f"$ {command}\n    ended with {code}, not {wanted}: "
                             f"{errors[-800:]}"))
        difference = compare(shown, found, tolerance, "times" in block.notes)
        if difference and not update:
            problems.append((block, f"$ {command}\n    {difference}"))
        out += ["$ " + command, *(shown if not difference else found)]
    return "\n".join(out) + "\n"


def run_sound(block, folder, build):
    """A block whose programs have a fault: without it the same commands succeed."""
    problems = []
    for command in [block.notes.pop("before", "true"), *(pair[0] for pair in block.commands())]:
        code, _, errors = folder.run("set -e -o pipefail\n" + command, build, True)
        if code:
            problems.append((block, f"without the fault, $ {command}\n    ends with {code}: "
                             f"{errors[-800:]}"))
    return problems


def run_page(page, build, update, faulty):
    """Returns the number of commands and what is wrong."""
    text = page.read_text()
    problems, commands, at, out = [], 0, 0, ""
    with tempfile.TemporaryDirectory(prefix="docs-") as path:
        folder = Folder(pathlib.Path(path).resolve(), build)
        for block in read_blocks(text):
            if block.kind != "console" or "not run" in block.notes:
                continue
            used = build
            if "fault" in block.notes:
                problems += run_sound(block, folder, build)
                faulty[0] = faulty[0] or Faulty()
                used = faulty[0].build(block.notes["fault"])
            commands += len(block.commands())
            printed = run_block(block, folder, used, problems, update)
            out += text[at:block.at] + printed
            at = block.at + len(block.text)
    if update and out + text[at:] != text:
        page.write_text(out + text[at:])
    return commands, problems


# ---- forms ----

def check_page(page):
    """What is wrong with the forms of a page's blocks."""
    text = page.read_text()
    problems = []
    for block in read_blocks(text):
        unknown = [note for note in block.notes if note not in NOTES]
        if unknown:
            problems.append((block, f"there is no note {unknown[0]}"))
        if "not run" in block.notes:
            continue
        if block.kind == "console":
            if not block.commands():
                problems.append((block, "a console without a command"))
        elif block.kind in ("", "sh", "bash", "shell"):
            found = [line for line in block.text.splitlines() if COMMAND.match(line + " ")]
            if found:
                problems.append((block, f"a command that is not run: {found[0].strip()}"))
    fenced = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for number, line in enumerate(fenced.splitlines(), 1):
        if line.startswith("    ") and COMMAND.match(line + " "):
            problems.append((number, f"a command outside of a fence: {line.strip()}"))
    return problems


def pages_of(names):
    if names:
        return [pathlib.Path(name).resolve() for name in names]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md",
            *sorted((ROOT / "examples").glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def report(page, problems):
    for block, problem in problems:
        line = block if isinstance(block, int) else block.line
        print(f"{os.path.relpath(page, ROOT)}:{line}: {problem}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("words", nargs="*", metavar="BUILD, PAGE")
    arguments = parser.parse_args()
    failed = commands = blocks = 0
    if arguments.check:
        for page in pages_of(arguments.words):
            problems = check_page(page)
            report(page, problems)
            failed += len(problems)
            blocks += sum(block.kind == "console" for block in read_blocks(page.read_text()))
        print(f"{blocks} blocks of commands, {failed} problems")
        sys.exit(failed > 0)
    if not arguments.words:
        parser.error("BUILD is missing: the folder of a build, such as build/release")
    build, faulty = pathlib.Path(arguments.words[0]).resolve(), [None]
    for page in pages_of(arguments.words[1:]):
        began = time.monotonic()
        count, problems = run_page(page, build, arguments.update, faulty)
        report(page, problems)
        if count:
            print(f"{os.path.relpath(page, ROOT)}: {count} commands in "
                  f"{time.monotonic() - began:.0f} s", flush=True)
        commands, failed = commands + count, failed + len(problems)
    print(f"{commands} commands, {failed} problems")
    sys.exit(failed > 0 or not commands)


if __name__ == "__main__":
    main()
