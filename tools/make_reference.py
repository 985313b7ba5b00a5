#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/c.md from include/echelon.h, and docs/reference/python.md from the
docstrings of python/echelon.

    tools/make_reference.py            writes the pages
    tools/make_reference.py --check    fails if a page is stale
"""
import ast
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "echelon"
# Of the package, in this order; classes of a module are in the order of its text.
MODULES = {"run": "Runs", "tensors": "Weights and states", "strategies": "Strategies",
           "callbacks": "Callbacks", "trained": "Trained models",
           "harness": "lm-evaluation-harness", "_keys": "Keys", "_library": "Errors"}
SPECIAL = {"__getitem__": "{}[name]", "__setitem__": "{}[name] = value",
           "__contains__": "name in {}", "__str__": "str({})"}


def paragraphs(text):
    """Text at 100 columns; examples, which are indented, in fences."""
    out = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.splitlines()
        if lines[0].startswith("    "):
            out.append("```\n" + textwrap.dedent(part) + "\n```")
        else:
            out.append(textwrap.fill(" ".join(part.split()), 98, break_on_hyphens=False))
    return "\n\n".join(out)


# ---- the header ----

def comment_text(block):
    """A comment without its stars and license."""
    inner = re.sub(r"^/\*|\*/$", "", block.strip())
    lines = [re.sub(r"^ \* ?", "", line) for line in inner.splitlines()]
    return "\n".join(line for line in lines if "SPDX" not in line).lstrip("\n")


def declarations(code):
    """Names of the functions and types that the code declares."""
    functions = re.findall(r"^ECHELON_API [^;(]*?\b(echelon_\w+)\(", code, re.M)
    types = re.findall(r"^(?:\} |typedef (?:struct|void) (?:echelon_\w+ )?)(echelon_\w+)[;(]", code,
                       re.M)
    return functions + types


def c_page():
    header = (ROOT / "include" / "echelon.h").read_text()
    body = header[:header.rindex("#ifdef __cplusplus")]
    out = ["# Reference: C", "<!-- Written by tools/make_reference.py from include/echelon.h. -->",
           paragraphs(comment_text(body[:body.index("*/") + 2]).strip(" "))]
    body = body[body.index("typedef enum"):]
    for block in re.split(r"\n(?=\n|/\*)", body):
        block = block.strip("\n")
        section = re.match(r"/\* ---- (.*) ---- \*/$", block)
        if section:
            out.append(f"## {section[1][0].upper()}{section[1][1:]}")
            continue
        comment = re.match(r"/\*.*?\*/\n?", block, re.S)
        names = declarations(block)
        if not names:
            continue
        code = block[comment.end():] if comment else block
        if "ECHELON_API" in code:
            code = code.replace("ECHELON_API ", "").replace("\n" + " " * 12, "\n")
        out.append("### " + ", ".join(f"`{name}`" for name in names))
        if comment:
            out.append(paragraphs(comment_text(comment[0])))
        out.append("```c\n" + code.strip("\n") + "\n```")
    return "\n\n".join(out) + "\n"


# ---- the package ----

def docstring(node):
    """A docstring, of which examples stay indented. "": none."""
    text = ast.get_docstring(node, clean=False) or ""
    indent = "\n" + " " * node.body[0].col_offset
    return text.replace(indent, "\n").strip()


def signature(name, function, is_method):
    arguments = function.args
    if is_method:
        arguments.args = arguments.args[1:]
    words = f"{name}({ast.unparse(arguments)})"
    if function.returns and ast.unparse(function.returns) != "None":
        words += f" -> {ast.unparse(function.returns)}"
    return "```python\n" + "\n".join(textwrap.wrap(words, 98, subsequent_indent="    ")) + "\n```"


def class_text(node, bases, lines):
    """A class, its fields, and those of its and its bases' methods that have docstrings."""
    words = docstring(node)
    out = [f"### `{node.name}`"]
    methods = {item.name: item for base in [*bases, node] for item in base.body
               if isinstance(item, ast.FunctionDef)}
    if "__init__" in methods and "Made by" not in words:
        out.append(signature(node.name, methods["__init__"], True))
    out.append(paragraphs(words))
    if node.bases and ast.unparse(node.bases[0]) == "TypedDict":
        fields = [lines[item.lineno - 1].strip() for item in node.body
                  if isinstance(item, ast.AnnAssign)]
        out.append("```python\n" + "\n".join(fields) + "\n```")
    for name, method in methods.items():
        words = docstring(method)
        if not words or (name.startswith("_") and name not in SPECIAL):
            continue
        is_property = any(ast.unparse(item) == "property" for item in method.decorator_list)
        shown = SPECIAL[name].format(node.name.lower()) if name in SPECIAL else name
        out.append(f"**`{shown}`**")
        if not is_property and name not in SPECIAL:
            out.append(signature(name, method, True))
        out.append(paragraphs(words))
    return out


def python_page():
    package = ast.parse((PACKAGE / "__init__.py").read_text())
    public = {(item.module, name.name) for item in package.body if isinstance(item, ast.ImportFrom)
              for name in item.names}
    out = ["# Reference: Python", "<!-- Written by tools/make_reference.py from docstrings. -->",
           paragraphs(docstring(package))]
    texts = {module: (PACKAGE / f"{module}.py").read_text() for module in MODULES}
    trees = {module: ast.parse(text) for module, text in texts.items()}
    bases = {node.name: node for node in trees["_keys"].body if isinstance(node, ast.ClassDef)}
    for module, title in MODULES.items():
        out.append(f"## {title}")
        for node in trees[module].body:
            if isinstance(node, ast.FunctionDef) and (module, node.name) in public:
                out += [f"### `{node.name}`", signature(node.name, node, False),
                        paragraphs(docstring(node))]
            elif isinstance(node, ast.ClassDef) and (module, node.name) in public:
                above = [bases[ast.unparse(base)] for base in node.bases
                         if ast.unparse(base) in bases]
                out += class_text(node, above, texts[module].splitlines())
    return "\n\n".join(out) + "\n"


def main():
    pages = {"c.md": c_page(), "python.md": python_page()}
    folder = ROOT / "docs" / "reference"
    for name, text in pages.items():
        path = folder / name
        if "--check" not in sys.argv:
            folder.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path} is stale; run tools/make_reference.py")


if __name__ == "__main__":
    main()
