#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the hints of error messages.

    hints.py ECHELON SOURCE CASES UNFOLLOWED    in a folder that hints.sh has filled

Each row of CASES is a wrong command line, a part of its error's text (a regex), and a command line
that does as the text says:

    WRONG|SAYS|RIGHT        RIGHT is a whole command line
    WRONG|SAYS|+K=V --X -K  WRONG with K=V in place of its K, with the word --X, without the key K
    WRONG|SAYS|             nothing is tried

Rows do not depend on each other. All WRONG are run, and this share of RIGHT (ECHELON_SHARE, as in
tests/share.h). WRONG ends with exit code 1, 2 or 3, RIGHT with 0. A WRONG that begins with "0 "
succeeds, with a warning.

Then the rows are compared with the program's texts. A hint is the part of a string in SOURCE that
tells the reader what to do, and names what a command line has: a key, an option, a command, or a
value. Each hint is printed by a row, or has a line in UNFOLLOWED, which says why no row does:

    REASON|FILE|TEXT        TEXT: the beginning of the hint; REASON: see that file

Hints about files and machines ("copy it again", "free some space") are not followed, nor are the
table of rules (config/test_rules follows it) and internal checks.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import zlib

LIMIT_S = 300
# Folders of internal checks, and of kernels.
SKIPPED = ("check", "exec", "kernel", "tensor")

# ---- hints in source files ----

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])+'", re.S)
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
ADJACENT = re.compile(LITERAL.pattern + r"(?:(?:\s|PRI\w+)*" + LITERAL.pattern + ")*")
VERBS = ("add build change choose convert draw export give import leave let lower make merge name "
         "omit pass plan put raise read remove run say set shorten show start state take train try "
         "use verify write").split()
BEGINS = re.compile(
    r"(?:^|; (?:or )?|: |, or )(?:(?:" + "|".join(VERBS) + r")\b|`echelon|%l?ld|%d|[^;]*\bwould\b)|"
    "did you mean|here that is|what would help")
SECTIONS = "model|data|training|optimizer|parallel|memory|precision|checkpoint|log|lora"
NAMES = re.compile(
    rf"\b(?:{SECTIONS})\.[a-z_]+|--[a-z]|`echelon|\bthe key\b|(?:this|that) (?:key|option)|"
    r"did you mean|here that is|what would help|%(?:lld|d|s) would|would be|a divisor|set it to|"
    r"\buse (?:at (?:least|most) )?(?:%|\d|[A-Z]\b|[a-z_0-9]+(?:,| or|$))|\buse fewer|"
    r"at (?:least|most) %|say %|write it|remove it$")


def without_comments(text):
    def blank(match):
        return match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0])
    lines = TOKEN.sub(blank, text).split("\n")
    return "\n".join("" if line.lstrip().startswith("#include") else line for line in lines)


def strings_of(path):
    """The strings of a C file, adjacent ones joined; number formats of inttypes.h become %d."""
    for match in ADJACENT.finditer(without_comments(path.read_text())):
        joined = re.sub(r"(?<=%)\"\s*PRI\w+\s*\"", "d", match[0])
        text = "".join(LITERAL.findall(joined))
        yield text.replace('\\"', '"').replace("\\\\", "\\").replace("\\n", "")


def hints_of(source):
    """Pairs of a file and a string that has a hint."""
    found = []
    for path in sorted((source / "src").rglob("*.[ch]")):
        name = path.relative_to(source / "src")
        if name.parts[0] in SKIPPED:
            continue
        for text in strings_of(path):
            begin = BEGINS.search(text)
            if len(text) > 8 and begin and NAMES.search(text, begin.start()):
                found.append((str(name), text))
    return list(dict.fromkeys(found))


def pattern_of(text):
    """A regex of what printf makes of the format."""
    parts = re.split(r"(%[-+ #0-9.*]*(?:ll|l|z|h)?[a-zA-Z%])", text)
    forms = {"d": r"-?\d+", "u": r"\d+", "g": r"[-+.\deinfa]+", "f": r"[-+.\deinfa]+",
             "x": "[0-9a-f]+", "s": ".*", "c": ".", "%": "%"}
    return re.compile("".join(forms.get(part[-1], ".*") if i % 2 else re.escape(part)
                              for i, part in enumerate(parts)))


# ---- rows ----

def rows_of(path, columns):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            parts = line.split("|", columns - 1)
            if len(parts) != columns:
                sys.exit(f"{path.name}:{number}: {columns} columns are needed")
            yield number, parts


def name_of(word):
    return word.split("=")[0]


def follow(wrong, right):
    """The words of the command line that does as the hint says."""
    if right[0] not in "+-":
        return shlex.split(right)
    words = shlex.split(wrong)
    for change in shlex.split(right):
        if change[0] == "-" and change[1] != "-":
            words = [word for word in words if name_of(word) != change[1:]]
            continue
        change = change.removeprefix("+")
        if "=" in change:
            words = [word for word in words if name_of(word) != name_of(change)]
        words.append(change)
    return words


def is_in_share(row):
    """Whether this run follows the row: ECHELON_SHARE is I/N or I-J/N."""
    shares, _, of = os.environ.get("ECHELON_SHARE", "0/1").partition("/")
    first, _, last = shares.partition("-")
    return int(first) <= zlib.crc32("|".join(row).encode()) % int(of) <= int(last or first)


class Runner:
    def __init__(self, echelon):
        self.echelon, self.said, self.checks, self.failures = echelon, [], 0, 0

    def complain(self, text, output=""):
        self.failures += 1
        print(f"FAILED: {text}")
        for line in output.splitlines()[-20:]:
            print(f"    | {line}")

    def run(self, words, codes, says=""):
        """Runs a command; returns what it printed."""
        self.checks += 1
        done = subprocess.run([self.echelon, *words], stdin=subprocess.DEVNULL, timeout=LIMIT_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text, line = done.stdout.decode(errors="replace"), shlex.join(words)
        if done.returncode not in codes:
            self.complain(f"exit code {done.returncode} instead of {codes}: {line}", text)
        if not re.search(says, text):
            self.complain(f'no "{says}" in: {line}', text)
        if "Sanitizer" in text or "runtime error:" in text:
            self.complain(f"a sanitizer speaks: {line}", text)
        return text

    def run_row(self, wrong, says, right):
        succeeds = wrong.startswith("0 ")
        wrong = wrong.removeprefix("0 ")
        self.said.append(self.run(shlex.split(wrong), (0,) if succeeds else (1, 2, 3), says))
        if right and is_in_share((wrong, says, right)):
            text = self.run(follow(wrong, right), (0,))
            if re.search(says, text):
                self.complain(f'"{says}" is said again: {shlex.join(follow(wrong, right))}', text)


# ---- rows against the source ----

def compare(runner, hints, unfollowed):
    """Each hint is said by a row, or listed; not both."""
    said, listed = "\n".join(runner.said), set()
    for number, (reason, name, text) in unfollowed:
        matches = [hint for hint in hints if hint[0] == name and text in hint[1]]
        if not matches:
            runner.complain(f"unfollowed, line {number}: {name} has no such hint: {text}")
        listed.update(matches)
    for name, text in hints:
        is_said = pattern_of(text).search(said)
        if not is_said and (name, text) not in listed:
            runner.complain(f"no row follows the hint of {name}: {text}")
        if is_said and (name, text) in listed:
            runner.complain(f"a row follows the hint of {name}, listed as unfollowed: {text}")
    return len(hints) - len(listed)


def main():
    echelon, source, cases, unfollowed = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
    runner = Runner(echelon)
    for _, row in rows_of(cases, 3):
        runner.run_row(*row)
    hints = hints_of(source)
    followed = compare(runner, hints, list(rows_of(unfollowed, 3)))
    print(f"{runner.checks} commands, {len(hints)} hints, {followed} of them followed, "
          f"{runner.failures} failures")
    sys.exit(1 if runner.failures else 0)


if __name__ == "__main__":
    main()
