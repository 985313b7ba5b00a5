#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the language of comments, docs, help and messages, and the width of lines.

    tools/check_words.py               the whole tree, less what check_words.todo allows
    tools/check_words.py FILE ...      every offence of these files; NAME.messages has a message
                                       a line
    tools/check_words.py --count       offences per kind, and the worst files
    tools/check_words.py --write       lowers the numbers of check_words.todo to today's

Kinds of offence:

    long      a sentence of more than 40 words
    verbless  a sentence that opens with "Of ...", "Who ...", "Whether ..." and has no main clause
    banned    a word or phrase of BANNED
    stand-in  "that of", "those of", "of which", where src has 20 or more of them
    columns   a line of more than 100 columns
    subject   a commit subject of more than 72 characters
    p90       of the sentences of comments, docs, help or messages, 10% have more than 28 words

A comment counts from two lines on for long, verbless and p90, and always for the others. Rows of a
table are noun phrases and may have no verb. Tables between "clang-format off" and "on" may be
wider. check_words.todo lists files that are not clean yet,
each with a number per kind. --write never raises a number.
"""
import argparse
import ast
import collections
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TODO = "tools/check_words.todo"
MOST_WORDS, USUAL_WORDS, COLUMNS, SUBJECT, STAND_INS = 40, 28, 100, 72, 20
WIDE = {".c", ".h", ".cu", ".cuh", ".sh", ".py"} # whose every line has at most COLUMNS
C = {".c", ".h", ".cu", ".cuh", ".def"}
CATEGORIES = ("comments", "docs", "help", "messages")

BANNED = re.compile(
    r"\b(?:behind|amid|amidst|whence|thence|whither|whereof|thereof|therein|wherein|thereupon"
    r"|(?:is|are|was|were|be|been) told of|comes? to lie|(?:has|have|had) it that"
    r"|what of (?:it|a|the)|nothing but|none but|nobody but|as said before"
    r"|who (?:has|have|holds|owns) (?:it|them)|apart(?! from\b))\b|(?<=[a-z,)] )meanwhile\b", re.I)
STAND_IN = re.compile(r"\b(?:that of|those of|of which)\b", re.I)
# A sentence with one of these openings has a main clause only if a word of VERBS follows.
OPENING = re.compile(r"(?:Of|Nor|Whether|What|Which|Where|How)\b(?!.*\?$)")
NEVER = re.compile(r"(?:Who|Whom|Whose|What of|Of what|Of whom|Of which|Nothing but|None but)\b"
                   r"(?!.*\?$)|Of .*\b(?:how|what|who|which|whether)\b")
VERBS = re.compile(r"\b(?:is|are|was|were|has|have|had|does|do|did|can|cannot|could|may|might|must|"
                   r"shall|should|will|would|depends?|follows?|gets?|needs?|holds?|keeps?|takes?|"
                   r"reads?|writes?|runs?|returns?|makes?|matters?|starts?|ends?|stays?|goes|go)\b")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|et al|vs|cf|Fig|Sec|Eq|No|approx|resp|pp|vol)\.$")


class Text:
    """A paragraph, list item, table row, help text or message, and the line of each character."""

    def __init__(self, category, is_row=False, is_short=False):
        # A row of a table; a comment of one line.
        self.category, self.is_row, self.is_short = category, is_row, is_short
        self.words, self.starts = "", []

    def add(self, line, words):
        if self.words:
            self.words += " "
        self.starts.append((len(self.words), line))
        self.words += words

    def line(self, at):
        return [line for start, line in self.starts if start <= at][-1]

    def sentences(self):
        """Yields each sentence's offset and words. In help and messages a semicolon ends one."""
        end = r"[.!?;]" if self.category in ("help", "messages") else r"[.!?]"
        start = 0
        for match in re.finditer(end + r"['\")\]]*\s+(?=['\"`(\[]?\S)", self.words):
            following = self.words[match.end():].lstrip("'\"`([")
            if ABBREVIATION.search(self.words[start:match.start() + 1]):
                continue
            if match.group()[0] != ";" and following[:1].islower():
                continue
            yield start, self.words[start:match.end()].strip()
            start = match.end()
        if self.words[start:].strip():
            yield start, self.words[start:].strip()


def count_words(sentence):
    return sum(1 for word in sentence.split() if re.search(r"[A-Za-z]", word))


# ---- from files to texts ----

def comment_texts(lines, category="comments"):
    """Splits the lines of a comment, pairs of a number and its words, into texts."""
    texts, text, column, indent = [], None, 0, 0
    is_short = len([1 for _, words in lines if words.strip() and "SPDX-" not in words]) < 2
    for number, words in lines:
        bare = words.strip()
        if not bare or "SPDX-License" in bare or re.match(r"[-=#*/]{3,}", bare):
            text = None
            continue
        margin = len(words) - len(words.lstrip())
        row = re.match(r"\S+(?: \S+){0,4}?\s{2,}(?=\S)", bare)
        if row and re.search(r"[.!?:]\s+$", row.group()):
            row = None
        if row or re.match(r"(?:[-*+]|\d+\.)\s", bare):
            text = Text(category, True, is_short)
            texts.append(text)
            column = margin + (row.end() if row else 2)
            text.add(number, bare[row.end():] if row else re.sub(r"^\S+\s+", "", bare))
            continue
        if text and text.is_row and margin + 1 < column and margin <= indent:
            text = None # the table has ended
        if not text:
            if margin >= indent + 4 and texts: # an example or a picture
                continue
            text, indent = Text(category, False, is_short), margin
            texts.append(text)
        elif not text.is_row and margin >= indent + 4:
            text = None
            continue
        text.add(number, bare)
    return texts


TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*|"
                   r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'",
                   re.S)


def c_texts(source, path):
    category = "help" if path.endswith(".def") else "messages"
    has_strings = path.startswith("src/")
    texts, strings, last = [], [], 0
    line, at = 1, 0

    def flush():
        nonlocal strings
        if strings:
            texts.extend(string_texts(strings, category))
        strings = []

    for match in TOKEN.finditer(source):
        line += source.count("\n", at, match.start())
        at = match.start()
        token = match.group()
        if token[0] == "/":
            lines = []
            for i, words in enumerate(token.split("\n")):
                words = re.sub(r"^\s*//", "", words) if token[1] == "/" else \
                    re.sub(r"^\s*(?:/\*+|\*(?!/))", "", re.sub(r"\s*\*+/$", "", words))
                lines.append((line + i, words))
            texts.extend(comment_texts(lines))
        elif token[0] == '"' and has_strings:
            between = source[last:match.start()]
            if strings and not re.fullmatch(r"\s*(?:PRI\w+|ECH_[A-Z_]+)?\s*", between):
                flush()
            elif strings and between.strip():
                strings.append((line, "N"))
            strings.append((line, token[1:-1]))
            last = match.end()
    flush()
    return texts


def string_texts(strings, category):
    whole = "".join(words for _, words in strings)
    if len(re.findall(r"[A-Za-z]{2,}", whole)) < 4 or " " not in whole.strip() or \
            re.search(r"[{}<>]|&&|==|\bfunction\b|^\s*\.", whole):
        return []
    texts, text = [], Text(category)
    for line, words in strings:
        for i, piece in enumerate(re.split(r"\\[nv]", words)):
            if i:
                texts.append(text)
                text = Text(category)
            piece = re.sub(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?[a-z]*", "N", piece).replace('\\"', '"')
            if not text.words:
                text.add(line, piece)
            else:
                text.starts.append((len(text.words), line))
                text.words += piece
    texts.append(text)
    for text in texts: # of a table of help only the second column is prose
        if re.match(r"\s*\S+(?: \S+){0,4}?\s{2,}\S", text.words):
            text.is_row = True
    return [text for text in texts if text.words.strip()]


def hash_texts(source, path):
    texts, block = [], []
    if path.endswith(".py"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and \
                    ast.get_docstring(node) is not None:
                words = node.body[0].value
                lines = (" " * words.col_offset + words.value).split("\n")
                texts.extend(comment_texts(list(enumerate(lines, words.lineno))))
    for number, words in enumerate(source.split("\n"), 1):
        match = re.match(r"\s*#(?!!)(.*)", words)
        if match:
            block.append((number, match.group(1)))
            continue
        texts.extend(comment_texts(block))
        trailing = re.search(r"\s# ([^\"']+)$", words)
        block = []
        if trailing:
            texts.extend(comment_texts([(number, trailing.group(1))]))
    return texts + comment_texts(block)


def markdown_texts(source):
    texts, text, is_code = [], None, False
    # Comments are commands (tests/tools/run_docs.py).
    source = re.sub(r"^<!--.*?-->", lambda found: "\n" * found[0].count("\n"), source,
                    flags=re.M | re.S)
    for number, line in enumerate(source.split("\n"), 1):
        bare = line.strip()
        if bare.startswith(("```", "~~~")):
            is_code, text = not is_code, None
            continue
        if is_code or not bare or bare.startswith("#") or re.match(r"<|\[[^]]+\]:", bare):
            text = None
            continue
        plain = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "N", bare))
        plain = re.sub(r"[*_]{2}|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)", "", plain)
        if bare.startswith("|"):
            text = None
            for cell in plain.strip("|").split("|"):
                if re.search(r"[A-Za-z]", cell):
                    cell_text = Text("docs", True)
                    cell_text.add(number, cell.strip())
                    texts.append(cell_text)
            continue
        item = re.match(r"(?:[-*+>]|\d+\.)\s+", plain)
        if item or not text:
            text = Text("docs", False)
            texts.append(text)
            plain = plain[item.end():] if item else plain
        text.add(number, plain)
    return texts


def message_texts(source):
    """Returns the messages that a program has printed, one a line, without the user's words."""
    texts = []
    for number, line in enumerate(source.split("\n"), 1):
        text = Text("messages")
        text.add(number, re.sub(r'"[^"]*"', "N", line))
        texts.append(text)
    return texts


def texts_of(path, source):
    suffix = pathlib.Path(path).suffix
    if suffix == ".messages":
        return message_texts(source)
    if suffix in C:
        return c_texts(source, path)
    return markdown_texts(source) if suffix == ".md" else hash_texts(source, path)


# ---- offences ----

def wide_lines(path, source):
    """Yields the numbers of lines that are too wide; prose has them, tables and links do not."""
    suffix, is_code, is_table = pathlib.Path(path).suffix, False, False
    for number, line in enumerate(source.split("\n"), 1):
        if suffix == ".md" and line.lstrip().startswith("```"):
            is_code = not is_code
        if suffix in C and "clang-format o" in line:
            is_table = "clang-format off" in line
        if len(line) <= COLUMNS or is_table:
            continue
        bare = re.sub(r"^\s*(?:[-*>#/]+\s+)?", "", line)
        if " " not in bare[:COLUMNS]:
            continue
        if suffix in WIDE or (suffix == ".md" and not is_code and not bare.startswith(("|", "<"))) \
                or (suffix == ".def" and re.match(r"\s*(?:/\*|\*)", line)):
            yield number


def offences(path, source):
    """Yields (kind, line, words), and for p90 ("words", category, number) of each sentence."""
    for number in wide_lines(path, source):
        yield "columns", number, source.split("\n")[number - 1].strip()[:70]
    for text in texts_of(path, source):
        for match in BANNED.finditer(text.words):
            yield "banned", text.line(match.start()), match.group()
        if path.startswith("src/"):
            for match in STAND_IN.finditer(text.words):
                yield "stand-in", text.line(match.start()), around(text.words, match)
        if text.is_short:
            continue
        for start, sentence in text.sentences():
            words = count_words(sentence)
            yield "words", text.category, words
            line = text.line(start)
            if words > MOST_WORDS:
                yield "long", line, f"{words} words: {sentence[:60]} ..."
            if text.is_row or text.category in ("help", "messages") or words < 3:
                continue
            opening = OPENING.match(sentence)
            if NEVER.match(sentence) or \
                    (opening and not VERBS.search(sentence, opening.end())):
                yield "verbless", line, sentence[:70]


def around(words, match):
    return words[max(0, match.start() - 25):match.end() + 25]


def git(*words, check=False):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=check)


def find_files():
    try:
        names = git("ls-files", "-z", check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError): # no checkout, as in an archive of the sources
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    return sorted(name for name in names if pathlib.Path(name).suffix in C | WIDE | {".md"} and
                  not name.startswith(("build", "tests/fixtures/")) and (ROOT / name).is_file())


def read_todo():
    """Returns {(kind, file): number}, and the commit after which subjects are checked."""
    allowed, base = {}, None
    for number, line in enumerate((ROOT / TODO).read_text().splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if fields[0] == "subjects-after" and len(fields) == 2:
            base = fields[1]
        elif len(fields) == 3 and fields[2].isdigit():
            allowed[fields[0], fields[1]] = int(fields[2])
        else:
            sys.exit(f"{TODO}:{number}: a line is KIND FILE NUMBER, or subjects-after COMMIT")
    return allowed, base


def subjects_after(base):
    """Yields the abbreviated id and subject of each commit after `base` that is too long."""
    if not base:
        return
    log = git("log", "--no-merges", "--format=%h %s", f"{base}..HEAD")
    for line in log.stdout.splitlines() if log.returncode == 0 else []:
        commit, subject = line.split(" ", 1)
        if len(subject) > SUBJECT:
            yield commit, subject


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", action="store_true", help="print offences per kind")
    parser.add_argument("--write", action="store_true", help=f"lower the numbers of {TODO}")
    parser.add_argument("--root", help="another tree, for tests of this script")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    if arguments.root:
        global ROOT
        ROOT = pathlib.Path(arguments.root).resolve()
    named = [os.path.relpath(name, ROOT) for name in arguments.files]
    allowed, base = ({}, None) if named else read_todo()

    found, lengths = collections.defaultdict(list), collections.defaultdict(list)
    for path in named or find_files():
        for kind, where, words in offences(path, (ROOT / path).read_text(errors="replace")):
            if kind == "words":
                lengths[where].append(words)
            else:
                found[kind, path].append((where, words))

    if arguments.count:
        count(found, lengths)
        return 0
    numbers = {place: len(of) for place, of in found.items()}
    stand_ins = [place for place in numbers if place[0] == "stand-in"]
    if not named and sum(numbers[place] for place in stand_ins) < STAND_INS:
        for place in stand_ins:
            del numbers[place]
    for category, words in lengths.items():
        words.sort()
        longest = words[min(len(words) - 1, len(words) * 9 // 10)]
        if longest > USUAL_WORDS and not named:
            numbers["p90", category] = longest
        elif named:
            wordy = sum(1 for n in words if n > USUAL_WORDS)
            print(f"{category}: {wordy} of {len(words)} sentences have more than {USUAL_WORDS} "
                  "words")
    if arguments.write:
        write_todo(allowed, numbers, base)
        return 0

    failed = False
    for (kind, path), number in sorted(numbers.items()):
        if number <= allowed.get((kind, path), 0):
            continue
        failed = True
        if kind == "p90":
            print(f"{path}: 10% of the sentences have more than {number} words; "
                  f"write sentences of at most {USUAL_WORDS}")
        for line, words in found.get((kind, path), []):
            print(f"{path}:{line}: {kind}: {words}")
    for commit, subject in subjects_after(base):
        failed = True
        print(f"commit {commit}: subject: {len(subject)} characters: {subject[:60]} ...")
    if failed:
        if not named:
            print(f"tools/check_words.py: rewrite these (its head explains the kinds); {TODO} "
                  "allows only what was there before")
        return 1
    if not named:
        left = sum(allowed.values())
        print(f"words: clean but for {left} older offences" if left else "words: clean")
    return 0


def write_todo(allowed, numbers, base):
    kept = {place: min(number, numbers[place]) for place, number in allowed.items()
            if place in numbers}
    lines = ["# What tools/check_words.py still allows: KIND FILE NUMBER. A number may only go",
             "# down; `tools/check_words.py --write` lowers them."]
    lines += [f"subjects-after {base}"] if base else []
    lines += [f"{kind} {path} {number}" for (kind, path), number in sorted(kept.items())]
    (ROOT / TODO).write_text("\n".join(lines) + "\n")


def count(found, lengths):
    kinds = collections.Counter()
    for (kind, _), of in found.items():
        kinds[kind] += len(of)
    for kind, number in sorted(kinds.items()):
        print(f"{kind:9} {number}")
        for (_, path), of in sorted((item for item in found.items() if item[0][0] == kind),
                                    key=lambda item: -len(item[1]))[:12]:
            print(f"    {len(of):4} {path}")
    for category in CATEGORIES:
        words = sorted(lengths[category])
        if words:
            print(f"{category:9} {len(words)} sentences, p90 {words[len(words) * 9 // 10]}, "
                  f"longest {words[-1]} words")


if __name__ == "__main__":
    sys.exit(main())
