# SPDX-License-Identifier: Apache-2.0
"""Records of seeded faults: their text form, and where a fault lies in a source file.

A list is tests/faults/ROOM.txt. Blank lines separate records; lines that begin with # are comments.
A record has four lines:

    ROOM/NAME FILE [in FUNCTION] [#N]
    - old text
    + new text
    test [VARIABLE=VALUE ...] TEST

ROOM/NAME is the fault's id. FILE is relative to the repository's root. The old text lies within
FILE, or within FUNCTION of it, exactly once; #N names its N-th occurrence where there are several.
Any white space of the old text matches any other, line breaks included, so code that moves or is
wrapped anew still matches. The new text may be empty. TEST is the name of a test as ctest prints
it, which fails with the fault; the variables are set for it.

Instead of "test", the fourth line may be "equivalent REASON": no test can tell the fault from the
original. Such a fault is applied and compiled, and no test runs.
"""
import pathlib
import re

HEADER = re.compile(r"(?P<id>[a-z0-9_]+/\S+)\s+(?P<file>\S+)(?:\s+in\s+(?P<function>\w+))?"
                    r"(?:\s+#(?P<occurrence>[1-9]\d*))?$")
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*=\S*$")


class FaultError(Exception):
    """What is wrong with a record, or with a fault that is applied."""


class Fault:
    def __init__(self, name, file, function, occurrence, old, new, test=None, variables=None,
                 reason=None, place=""):
        self.id, self.file, self.function, self.occurrence = name, file, function, occurrence
        self.old, self.new, self.test = old, new, test
        self.variables, self.reason, self.place = variables or {}, reason, place

    def verdict(self):
        if self.reason:
            return f"equivalent {self.reason}"
        variables = [f"{key}={value}" for key, value in self.variables.items()]
        return " ".join(["test", *variables, self.test or "?"])

    def text(self):
        header = f"{self.id} {self.file}"
        if self.function:
            header += f" in {self.function}"
        if self.occurrence:
            header += f" #{self.occurrence}"
        return f"{header}\n- {self.old}\n+ {self.new}".rstrip() + f"\n{self.verdict()}\n"


def parse_record(lines, place):
    """lines: of one record, without comments. place: FILE:LINE of the first."""
    if len(lines) != 4 or lines[1][:1] != "-" or lines[2][:1] != "+":
        raise FaultError(f"{place}: a record has four lines: ID FILE, - old, + new, "
                         "test or equivalent")
    header = HEADER.match(lines[0])
    if not header:
        raise FaultError(f"{place}: the first line is ROOM/NAME FILE [in FUNCTION] [#N]")
    old, new = lines[1][1:].strip(), lines[2][1:].strip()
    if not old or old == new:
        raise FaultError(f"{place}: the old text is empty, or the new one is the same")
    fault = Fault(header["id"], header["file"], header["function"],
                  int(header["occurrence"] or 0), old, new, place=place)
    word, _, rest = lines[3].partition(" ")
    rest = rest.strip()
    if word == "equivalent" and rest:
        fault.reason = rest
        return fault
    words = rest.split()
    while words and VARIABLE.match(words[0]):
        key, _, value = words.pop(0).partition("=")
        fault.variables[key] = value
    if word != "test" or len(words) != 1:
        raise FaultError(f"{place}: the last line is test [VARIABLE=VALUE ...] TEST, or "
                         "equivalent REASON")
    fault.test = words[0]
    return fault


def read_list(path):
    faults, lines, first = [], [], 0
    for number, line in enumerate(path.read_text().split("\n") + [""], 1):
        line = line.strip()
        if line.startswith("#"):
            continue
        if line:
            first = first if lines else number
            lines.append(line)
        elif lines:
            faults.append(parse_record(lines, f"{path.name}:{first}"))
            lines = []
    return faults


def read_lists(folder):
    """All faults of a folder's lists, in the lists' order."""
    faults, places = [], {}
    for path in sorted(pathlib.Path(folder).glob("*.txt")):
        for fault in read_list(path):
            if fault.id in places:
                raise FaultError(f"{fault.place}: {fault.id} is a fault of {places[fault.id]}, too")
            if fault.id.partition("/")[0] != path.stem:
                raise FaultError(f"{fault.place}: a fault of this list is named {path.stem}/...")
            places[fault.id] = fault.place
            faults.append(fault)
    return faults


def function_spans(text):
    """Functions of C text: {name: [(begin, end), ...]}, by braces in the first column. The name of
    one that is declared as MACRO(name)(...) is name."""
    spans = {}
    for body in re.finditer(r"^\{\n.*?^\}", text, re.M | re.S):
        head = max(text.rfind(mark, 0, body.start()) for mark in ("\n}", ";\n", "*/\n", "\n\n"))
        name = re.compile(r"\w+\((\w+)\)\s*\(|(\w+)\s*\(").search(text, max(head, 0), body.start())
        if name:
            spans.setdefault(name[1] or name[2], []).append((name.start(), body.end()))
    return spans


def pattern(old):
    """A regular expression for old text, where white space is any white space."""
    expression = r"\s+".join(re.escape(word) for word in old.split())
    before = r"(?<!\w)" if re.match(r"\w", old) else ""
    behind = r"(?!\w)" if re.search(r"\w$", old) else ""
    return re.compile(before + expression + behind)


def locate(fault, text):
    """Where the fault's old text lies in its file's text: (begin, end)."""
    spans = [(0, len(text))]
    where = fault.file
    if fault.function:
        where = f"{fault.function}() of {fault.file}"
        spans = function_spans(text).get(fault.function, [])
        if not spans:
            raise FaultError(f"{fault.file} has no function {fault.function}")
    found = [m.span() for begin, end in spans
             for m in pattern(fault.old).finditer(text, begin, end)]
    if not found:
        raise FaultError(f"{where} no longer has the text: {fault.old}")
    if fault.occurrence > len(found):
        raise FaultError(f"{where} has the text {len(found)} times, #{fault.occurrence} is none: "
                         f"{fault.old}")
    if not fault.occurrence and len(found) > 1:
        raise FaultError(f"{where} has the text {len(found)} times; add \"in FUNCTION\" or #N, or "
                         f"quote more of it: {fault.old}")
    return found[max(fault.occurrence, 1) - 1]


def apply(fault, text):
    """The file's text with the fault."""
    begin, end = locate(fault, text)
    return text[:begin] + fault.new + text[end:]


def check(fault, root):
    """Returns what is wrong with a fault's patch, or None."""
    path = pathlib.Path(root) / fault.file
    try:
        if not path.is_file():
            raise FaultError(f"there is no file {fault.file}")
        apply(fault, path.read_text())
    except FaultError as error:
        return f"{fault.place}: {fault.id}: {error}"
    return None
