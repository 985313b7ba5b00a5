# SPDX-License-Identifier: Apache-2.0
"""Tables that speed.py prints, and what became of its targets."""
import dataclasses


def title(text):
    print(f"\n## {text}\n", flush=True)


def table(heads, rows):
    """Columns of text; the first to the left, the others to the right."""
    rows = [[str(cell).strip() for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows)]
    for row in [heads, *rows]:
        cells = [cell.rjust(width) for cell, width in zip(row, widths)]
        cells[0] = row[0].ljust(widths[0])
        print("   ".join(cells).rstrip(), flush=True)


@dataclasses.dataclass
class Verdict:
    """A target, and whether it is met: at least `wanted`, or at most."""
    what: str
    value: float
    wanted: float
    least: bool = True

    def met(self):
        return self.value >= self.wanted if self.least else self.value <= self.wanted

    def row(self):
        return (self.what, f"{self.value:.3f}",
                f"{'at least' if self.least else 'at most'} {self.wanted:g}",
                "met" if self.met() else "MISSED")


def verdicts(all_of_them):
    title("Targets")
    table(("", "measured", "wanted", ""), [verdict.row() for verdict in all_of_them])
