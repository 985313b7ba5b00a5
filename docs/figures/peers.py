#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/peers.svg: the speed of Echelon over PyTorch's, by machine.

    docs/figures/peers.py            draws it
    docs/figures/peers.py --check    fails if the picture is stale

All numbers are read from the tables of docs/performance.md, which names the command of each.
"""
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parents[1]
ROW, WIDTH, LEFT, TOP, UNIT = 26, 760, 250, 74, 195 # pixels; UNIT: of a ratio of 1
LIGHT, DARK, INK, FAINT = "#0072b2", "#b25a00", "#1c2530", "#5b6675"


def cells(text, first, after=""):
    """The cells of the first row after a heading or sentence that begins with these words."""
    at = text.index(after) if after else 0
    row = re.search(rf"^\| {re.escape(first)}.*$", text[at:], re.M)
    if not row:
        sys.exit(f"peers: docs/performance.md has no row {first}")
    return [cell.strip() for cell in row[0].strip("| ").split("|")]


def number(cell):
    return float(re.match(r"[\d,.]+", cell)[0].replace(",", ""))


def bars():
    """Pairs of a machine and its rows (model, over eager, over compiled)."""
    text = (DOCS / "performance.md").read_text()
    out = []

    def add(machine, rows):
        out.append((machine, rows))

    def over(ours, eager, compiled):
        return number(eager) / number(ours), number(compiled) / number(ours)

    rows = []
    for first, name in (("GPT-2 124M, 4 x 256", "GPT-2 124M"),
                        ("GPT-2, 6 layers, 384 wide, 50,257 ids", "GPT-2, 6 layers"),
                        ("Llama, 8 layers, 512 wide, 257 ids", "Llama, 8 layers")):
        _, ours, eager, compiled, *_ = cells(text, first)
        rows.append((name, *over(ours, eager, compiled)))
    add("2 cores, Zen 4, fp32", rows)
    rows = []
    for first, name in (("GPT-2 124M, 4 x 256", "GPT-2 124M"),
                        ("Llama, 8 layers, 512 wide, 1 x 2,048", "Llama, 8 layers")):
        _, ours, _, eager, compiled, *_ = cells(text, first, "**bf16.**")
        rows.append((name, *over(ours, eager, compiled)))
    add("2 cores, Zen 5, bf16", rows)
    at = "**GPT-2 124M** in bf16, 0.5M tokens a step"
    ours, eager, compiled = (cells(text, first, at)[1] for first in (
        "Echelon", "PyTorch, eager", "PyTorch, compiled"))
    add("NVIDIA H100, bf16", [("GPT-2 124M", *over(ours, eager, compiled))])
    return out


def draw():
    out, y = [], TOP
    for machine, rows in bars():
        out.append(f'<text x="16" y="{y + 4}" font-weight="bold" fill="{INK}">{machine}</text>')
        y += 14
        for model, eager, compiled in rows:
            out.append(f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end" fill="{INK}">'
                       f'{model}</text>')
            for value, shift, color in ((eager, 0, LIGHT), (compiled, 10, DARK)):
                width = value * UNIT
                out.append(f'<rect x="{LEFT}" y="{y + shift}" width="{width:.1f}" height="9" '
                           f'fill="{color}"/><text x="{LEFT + width + 5:.1f}" y="{y + shift + 9}" '
                           f'font-size="10" fill="{FAINT}">{value:.2f}</text>')
            y += ROW
        y += 18
    x = LEFT + UNIT
    line = (f'<path d="M{x} {TOP - 14}V{y - 14}" stroke="{INK}" stroke-dasharray="3 3"/>'
            f'<text x="{x}" y="{y}" text-anchor="middle" font-size="10" fill="{FAINT}">'
            'as fast as PyTorch</text>')
    head = (f'<text x="16" y="24" font-size="15" font-weight="bold" fill="{INK}">Training speed '
            f'over PyTorch\'s, same machine, same run</text>'
            f'<rect x="16" y="36" width="10" height="10" fill="{LIGHT}"/>'
            f'<text x="31" y="45" fill="{FAINT}">over eager</text>'
            f'<rect x="116" y="36" width="10" height="10" fill="{DARK}"/>'
            f'<text x="131" y="45" fill="{FAINT}">over torch.compile</text>')
    height = y + 14
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="Helvetica,Arial,sans-serif" '
            'font-size="12" role="img" aria-label="Speed over PyTorch by machine">\n'
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n' + head + "\n" +
            "\n".join(out) + "\n" + line + "\n</svg>\n")


def main():
    path = DOCS / "peers.svg"
    if sys.argv[1:] == ["--check"]:
        sys.exit(path.read_text() != draw() and "docs/peers.svg is stale: docs/figures/peers.py")
    path.write_text(draw())


if __name__ == "__main__":
    main()
