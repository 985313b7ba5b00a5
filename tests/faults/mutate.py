# SPDX-License-Identifier: Apache-2.0
"""Draws faults from src: small changes of C statements, of which most compile."""
import random
import re

import records
import scratch

# How many faults a room is to have, relative to others.
WEIGHTS = {"base": 8, "config": 10, "device": 6, "tensor": 10, "comm": 24, "kernel": 40,
           "layer": 28, "optim": 14, "model": 14, "layout": 26, "schedule": 48, "simulate": 14,
           "check": 16, "data": 22, "checkpoint": 22, "draw": 8, "exec": 40}
# Of kernels those that every build has; no launching, killing or removing of files.
LEFT_OUT = re.compile(r"src/kernel/cuda/|src/device/cuda|src/data/import|src/app/"
                      r"|src/comm/(mpi|ucx|nccl|launch|life|guard|tcp)"
                      r"|src/kernel/cpu/(library|grouped_library)|src/base/file\.c"
                      r"|src/kernel/(bench|isa)")
SPOKEN = re.compile(r"ECH_FAIL|ECH_ASSERT|assert|_log\w*\(|log_\w+\(|printf|_text\w*\(|text_\w+\(|"
                    r"_append|strerror|unlink|rmdir|remove\(|\bkill\(|\bfork\(|ECH_FREED|\bfree\(|"
                    r"\bclose\(|pthread_|_print\w*\(|print_\w+\(|\bcase\b.*:|return \"|#")
FEWEST, WHOLE, MOST = 24, 84, 90 # characters of old text: at least, of a line, at most
PER_FILE = 6


def swap(pairs):
    return lambda m, text: pairs[m.group(0).strip()]


def rewrite(template):
    return lambda m, text: m.expand(template)


def another_group(m, text):
    others = {"DATA": "TENSOR", "TENSOR": "DATA", "CONTEXT": "TENSOR", "WORLD": "DATA",
              "PARTIAL": "DATA", "KEY_VALUE": "DATA", "TIED": "DATA", "EXPERT": "EXPERT_DATA",
              "EXPERT_DATA": "DATA", "EXPERT_PARTIAL": "EXPERT_DATA", "REPLICA": "WORLD",
              "REPLICAS": "DATA", "SERVED": "DATA", "PUSHED": "SERVED", "SERVERS": "SERVED"}
    return "ECH_GROUP_" + others[m[1]] if m[1] in others else None


OPERAND = r"(?:[a-zA-Z_]\w*(?:(?:->|\.)\w+|\[\w+\])*|\d+)"
# Kind: expression over code without comments and strings, how it is replaced, share of draws.
KINDS = {
    "bound": (r" (?:<=|>=|<|>) ", swap({"<": " <= ", "<=": " < ", ">": " >= ", ">=": " > "}), 5),
    "equal": (r" (?:==|!=) ", swap({"==": " != ", "!=": " == "}), 4),
    "both": (r" (?:&&|\|\|) ", swap({"&&": " || ", "||": " && "}), 4),
    "not": (r"(?<=[( ])!(?=[a-z(])", lambda m, text: "", 2),
    "plus": (r"(?<=[\w)\]]) \+ (?=[\w(])", lambda m, text: " - ", 3),
    "minus": (r"(?<=[\w)\]]) - (?=[\w(])", lambda m, text: " + ", 3),
    "times": (r"(?<=[\w)\]]) [*/] (?=[\w(])", swap({"*": " / ", "/": " * "}), 2),
    "remainder": (r"(?<=[\w)\]]) % (?=[\w(])", lambda m, text: " / ", 3),
    "one": (r"(?<=[\w)\]]) [+-] 1\b(?![.\w])", lambda m, text: "", 6),
    "zero": (r"(?<== )0(?=;)", lambda m, text: "1", 2),
    "sign": (r"(?<=[=(,] )-(?=[a-z(])|(?<=\()-(?=[a-z(])|(?<=return )-(?=[a-z(])",
             lambda m, text: "", 3),
    "sum": (r" \+= ", lambda m, text: " = ", 4),
    "taken": (r" [+-]= ", swap({"+=": " -= ", "-=": " += "}), 2),
    "group": (r"\bECH_GROUP_([A-Z_]+)\b", another_group, 8),
    "true": (r"\b(?:true|false)\b", swap({"true": "false", "false": "true"}), 3),
    "scale": (r" [*/] (?=\w*(?:scale|weight|rate|share|factor|denominator|count|decay|total))"
              + OPERAND + r"(?![\w(\[])", lambda m, text: "", 8),
    "version": (r"\b(\w*(?:version|slot|turn|chunk|micro|step|round|window|stage)\w*)\](?!\w)",
                rewrite(r"\1 ^ 1]"), 3),
    "wait": (r"(?<=[;{}]\n)[ ]+(?:if \([^;{}]*\) )?[^;{}()=]*"
             r"(?:wait|after|await|fence|barrier|meet)\w*\([^;{}]*\);", None, 10),
    "call": (r"(?<=[;{}]\n)[ ]+(?:ECH_TRY\()?[a-z]\w*\([^;{}]*\);", None, 4),
    "set": (r"(?<=[;{}]\n)[ ]+[\w>.\[\]*-]+ (?:=|\+=|\|=|-=) [^;{}]*;", None, 5),
    "when": (r"(?<=[;{}]\n)[ ]+if \(([^;{}]*?)\) (?!return|break|continue|goto)"
             r"(?=[a-z*+(][^;{}]*;)", None, 3),
    "go_on": (r"\bcontinue;", lambda m, text: "break;", 1),
}


def blank(text):
    """The text with comments, strings and preprocessor lines as spaces."""
    expression = (r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
                  r'|^#(?:[^\n]*\\\n)*[^\n]*')
    return re.sub(expression, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S | re.M)


def statement(code, begin, end):
    """What lies between the semicolons and braces around a site."""
    first = max(code.rfind(c, 0, begin) for c in ";{}") + 1
    last = min((i for i in (code.find(c, end - 1) for c in ";{}") if i >= 0), default=end)
    return code[first:last + 1]


def sites(text):
    """All changes of a file: (kind, function, begin, end, replacement)."""
    code = blank(text)
    spans = [(name, span) for name, all_of in records.function_spans(text).items()
             for span in all_of]
    for kind, (expression, replace, _) in KINDS.items():
        for m in re.finditer(expression, code):
            inside = [name for name, (begin, end) in spans if begin <= m.start() and m.end() <= end]
            if not inside:
                continue
            begin, end = m.span()
            if SPOKEN.search(statement(code, begin, end)) or "*out =" in m[0]:
                continue
            if kind in ("one", "plus", "minus", "times") and "alloc" in statement(code, begin, end):
                continue # what is too small is seen by sanitizers alone
            if kind in ("sum", "taken") and re.search(r"for \([^\n]*$", code[:begin][-200:]):
                continue # would go on for ever
            if replace:
                new = replace(m, text)
            else:
                begin += len(m[0]) - len(m[0].lstrip())
                if m[0].strip().startswith(("return", "break", "continue", "goto")) \
                        or "alloc" in m[0]:
                    continue
                new = "" if kind == "when" else ";"
                end = m.end()
            if new is not None and code[begin:end] == text[begin:end]:
                yield kind, inside[0], begin, end, new


def quote(text, begin, end, new, function):
    """Old and new text of a change, wide enough to be told from others: (old, new, occurrence)."""
    code = blank(text)
    line_begin = text.rfind("\n", 0, begin) + 1
    line_end = text.find("\n", end)
    words = [m.span() for m in re.finditer(r"\S+", text[line_begin:line_end])]
    words = [(a + line_begin, b + line_begin) for a, b in words]
    words = [(a, b) for a, b in words if code[a:b] == text[a:b]] # none with comments or strings
    first = max((i for i, (a, _) in enumerate(words) if a <= begin), default=None)
    last = min((i for i, (_, b) in enumerate(words) if b >= end), default=None)
    if first is None or last is None:
        return None

    def joined(i, j):
        """Whether no comment lies between two words."""
        return not re.search(r"/\*|//", text[words[i][0]:words[j][1]])

    if words[-1][1] - words[0][0] <= WHOLE and joined(0, len(words) - 1):
        first, last = 0, len(words) - 1
    begin_of, end_of = words[first][0], words[last][1]
    if text[begin_of:end_of].count("\n"):
        return None

    def probe():
        old = text[begin_of:end_of]
        return records.Fault("", "", function, 0, old, "")

    def count():
        span = records.function_spans(text).get(function, [])
        return [m.span() for s in span for m in records.pattern(probe().old).finditer(text, *s)]

    while len(count()) > 1 or end_of - begin_of < FEWEST:
        grown = False
        if first > 0 and end_of - words[first - 1][0] <= MOST and joined(first - 1, first):
            first, grown = first - 1, True
        if last + 1 < len(words) and words[last + 1][1] - words[first][0] <= MOST and \
                joined(last, last + 1):
            last, grown = last + 1, True
        begin_of, end_of = words[first][0], words[last][1]
        if not grown:
            break
    found = count()
    if (begin_of, end_of) not in found:
        return None
    occurrence = found.index((begin_of, end_of)) + 1 if len(found) > 1 else 0
    old = text[begin_of:end_of]
    changed = text[begin_of:begin] + new + text[end:end_of]
    if len(old) > MOST or "\n" in old:
        return None
    return " ".join(old.split()), " ".join(changed.split()), occurrence


def draw(root, seed, count, rooms, known):
    """Faults that are neither known nor alike each other, at most one a line."""
    generator = random.Random(seed)
    files, taken = {}, {}
    for name in scratch.source_files(root):
        if re.match(r"src/.*\.[ch]$", name) and not LEFT_OUT.match(name):
            room = name.split("/")[1]
            if room in WEIGHTS and (not rooms or room in rooms):
                files.setdefault(room, []).append(name)
    used = {fault.id for fault in known}
    per_file = {}
    for fault in known:
        taken.setdefault(fault.file, set()).add(fault.old)
        per_file[fault.file] = per_file.get(fault.file, 0) + 1
    texts, found, faults, tries = {}, {}, [], 0
    while len(faults) < count and tries < 200 * count:
        tries += 1
        room = generator.choices(list(files), [WEIGHTS[r] for r in files])[0]
        name = generator.choice(files[room])
        if per_file.get(name, 0) >= PER_FILE:
            continue
        if name not in texts:
            texts[name] = (root / name).read_text()
            found[name] = list(sites(texts[name]))
        kind = generator.choices(list(KINDS), [k[2] for k in KINDS.values()])[0]
        of_kind = [site for site in found[name] if site[0] == kind]
        if not of_kind:
            continue
        _, function, begin, end, new = generator.choice(of_kind)
        quoted = quote(texts[name], begin, end, new, function)
        if not quoted or quoted[0] in taken.setdefault(name, set()) or quoted[0] == quoted[1]:
            continue
        taken[name].add(quoted[0])
        per_file[name] = per_file.get(name, 0) + 1
        noun = name.split("/")[-1].rsplit(".", 1)[0]
        identity, number = f"{room}/{noun}-{kind}", 1
        while identity in used:
            number += 1
            identity = f"{room}/{noun}-{kind}-{number}"
        used.add(identity)
        fault = records.Fault(identity, name, function, quoted[2], quoted[0], quoted[1])
        fault.place = "drawn"
        if not records.check(fault, root):
            faults.append(fault)
    return faults
