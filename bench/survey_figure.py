# SPDX-License-Identifier: Apache-2.0
"""The figure of survey.py: a row for each case, with two charts of losses and two of bars."""
import math
import statistics

COLOURS = ("#1f77b4", "#9467bd", "#d62728", "#7f7f7f", "#2ca02c", "#ff7f0e", "#17becf", "#8c564b")
TICKS = (0, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300)
WIDTH, ROW, TOP, CHART_HIGH = 1000, 290, 60, 190  # pixels
CHARTS = ((50, 290), (390, 290))  # left edge and width of each chart of losses
BARS = ((760, 100), (880, 100))  # of each chart of bars
INK, FAINT = "#1c2530", "#5b6675"


def text(x, y, words, anchor="start", colour=INK, size=11, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
            f'font-size="{size}" font-weight="{weight}">{words}</text>')


def line(x, y, to_x, to_y):
    return f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="#ddd"/>'


def path(points):
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


# ---- losses ----


def value_at(points, at):
    """On the line between two points; None: outside of them."""
    for (x, a), (y, b) in zip(points, points[1:]):
        if x <= at <= y:
            return a + (b - a) * ((at - x) / (y - x) if y > x else 0)
    return None


def band(runs, seconds, grid=120):
    """[(seconds, lowest, mean, highest)] at times at which all runs have a value; they are closer
    at the beginning, as the axis is."""
    out = []
    for step in range(grid + 1):
        at = seconds * (step / grid) ** 2
        values = [value_at(points, at) for points in runs]
        if None not in values:
            out.append((at, min(values), statistics.mean(values), max(values)))
    return out


def losses(title, bands, seconds, left, wide, top):
    """A chart of {way: band}; the time axis shows square roots."""
    low = min(point[1] for points in bands.values() for point in points)
    most = max(point[3] for points in bands.values() for point in points)
    most = max(most, low + 0.1)
    x = lambda at: left + wide * math.sqrt(at / seconds)
    y = lambda loss: top + CHART_HIGH * (most - loss) / (most - low)
    out = [text(left, top - 10, title, weight="bold")]
    for tick in (tick for tick in TICKS if tick <= seconds):
        out += [line(x(tick), top, x(tick), top + CHART_HIGH),
                text(x(tick), top + CHART_HIGH + 14, f"{tick} s", "middle", FAINT, 9)]
    for step in range(5):
        loss = low + (most - low) * step / 4
        out += [line(left, y(loss), left + wide, y(loss)),
                text(left - 5, y(loss) + 3, f"{loss:.2f}", "end", FAINT, 9)]
    for (_, points), colour in zip(bands.items(), COLOURS):
        if not points:
            continue
        around = ([(x(at), y(high)) for at, _, _, high in points] +
                  [(x(at), y(least)) for at, least, _, _ in reversed(points)])
        middle = [(x(at), y(mean)) for at, _, mean, _ in points]
        out += [f'<polygon points="{path(around)}" fill="{colour}" opacity="0.2"/>',
                f'<polyline points="{path(middle)}" fill="none" stroke="{colour}" '
                'stroke-width="1.5"/>']
    return out


# ---- bars ----


def bars(title, values, left, wide, top):
    """values: {way: the seeds' values}. A bar is their mean, its line their range."""
    most = max(max(all_of) for all_of in values.values()) or 1
    high = CHART_HIGH / len(values)
    out = [text(left, top - 10, title, weight="bold")]
    for row, (all_of, colour) in enumerate(zip(values.values(), COLOURS)):
        y, mean = top + row * high, statistics.mean(all_of)
        first, last = (left + wide * value / most for value in (min(all_of), max(all_of)))
        out += [f'<rect x="{left}" y="{y + 2:.1f}" width="{wide * mean / most:.1f}" '
                f'height="{high - 4:.1f}" fill="{colour}"/>',
                f'<path d="M{first:.1f} {y + high / 2:.1f}H{last:.1f}" stroke="{INK}"/>',
                text(left + 3, y + high / 2 + 4, f"{mean:.1f}", colour="#ffffff", size=10)]
    return out


# ---- the whole ----


def draw_case(case, curves, seconds, window, top):
    out = [text(16, top - 32, f"Bound by {case}", size=14, weight="bold")]
    kinds = ((f"training loss, mean of {window} steps", "trained"),
             ("validation loss", "validated"))
    for (title, kind), (left, wide) in zip(kinds, CHARTS):
        bands = {name: band([getattr(run, kind) for run in runs], seconds)
                 for name, runs in curves.items()}
        out += losses(title, bands, seconds, left, wide, top)
    out += bars("ranks wait, %", {name: [100 * run.idle for run in runs]
                                  for name, runs in curves.items()}, *BARS[0], top)
    out += bars("samples/s", {name: [run.rate for run in runs]
                              for name, runs in curves.items()}, *BARS[1], top)
    return out


def legend(names, y):
    out, x = [], 16
    for name, colour in zip(names, COLOURS):
        out += [f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>',
                text(x + 14, y, name)]
        x += 34 + 6.2 * len(name)
    return out


def draw(found, seconds, window):
    """An SVG of {case: {way: [survey.Curves of each seed]}}."""
    high = TOP + ROW * len(found)
    names = list(next(iter(found.values())))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" '
        f'width="{WIDTH}" height="{high}" font-family="Helvetica,Arial,sans-serif" role="img" '
        'aria-label="Loss against time on two machines, one of them slow">',
        f'<rect width="{WIDTH}" height="{high}" fill="white"/>',
        *legend(names, 20),
    ]
    for row, (case, curves) in enumerate(found.items()):
        out += draw_case(case, curves, seconds, window, TOP + 34 + ROW * row)
    return "\n".join(out) + "\n</svg>\n"
