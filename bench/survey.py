# SPDX-License-Identifier: Apache-2.0
"""The survey's experiment: loss against time of ways to train one model on two machines, of which
one is slow.

    ./quickstart.sh                                         # makes data/bible-train
    sudo python bench/survey.py --svg docs/workers.svg      # needs an otherwise idle machine

It runs for about eight minutes; half as long with --seconds 25.

The machines are two network namespaces joined by link.py's link of 1 Gbit. Rank 1 sleeps in each
training step as long as a worker computes one. Data parallel ways have a replica each: BSP
(gradients are summed in each step), SSP and ASP (a server beside rank 1 updates at each push). The
others cut the model in two: model parallelism (one micro-batch at a time), the pipeline that is
flushed in each step (1F1B), and those that are not (PipeDream, PipeDream-2BW). All read the same
samples a step, and take the same optimizer at the same rate."""

import itertools
import pathlib
import statistics
import tempfile

import common
import link
import report

MODEL = [
    "model.architecture=gpt2",
    "model.hidden_size=256",
    "model.num_hidden_layers=4",
    "model.num_attention_heads=4",
    "model.tie_word_embeddings=false",
    "data.sequence_length=128",
    "training.global_batch_size=16",
    "training.micro_batch_size=2",
    "training.check_every=0",
    "optimizer.learning_rate=1e-3",
    "optimizer.schedule=constant",
    "checkpoint.every=1000000",
    "parallel.threads=1",
    "parallel.comm=mpi",
    "log.every=1000000",
]
CUT = ["parallel.pipeline=2"]
WAYS = {
    "BSP": (2, ["parallel.data=2"]),
    "SSP, staleness 2": (
        3,
        ["parallel.strategy=ssp", "parallel.staleness=2", "parallel.flush_every=16"],
    ),
    "ASP": (3, ["parallel.strategy=asp", "parallel.flush_every=16"]),
    "model parallelism": (2, [*CUT, "parallel.schedule=naive"]),
    "pipeline, 1F1B": (2, [*CUT, "parallel.schedule=1f1b"]),
    "PipeDream": (2, [*CUT, "parallel.schedule=pipedream", "parallel.flush_every=16"]),
    "PipeDream-2BW": (2, [*CUT, "parallel.schedule=pipedream-2bw", "parallel.flush_every=16"]),
}
COLOURS = ("#1f77b4", "#9467bd", "#d62728", "#7f7f7f", "#2ca02c", "#ff7f0e", "#17becf")
WINDOW = 12  # steps, of which losses are averaged


def words_of(options, ends, ranks, keys):
    """Rank 0 at the one end, the others at the other."""
    words = ends.words([options.echelon, "train", ends.folder / "run.yaml", *keys])
    words[words.index("-H") + 1] = f"{link.ADDRESSES[0]}:1,{link.ADDRESSES[1]}:{ranks - 1}"
    words[words.index("-n") + 1] = str(ranks)
    return words


def train(options, ends, name, steps, more):
    """The metrics of a run's training steps."""
    ranks, words = WAYS[name]
    run = ends.folder / f"{name.split(',')[0].replace(' ', '-')}-{steps}"
    keys = [
        *MODEL,
        *words,
        *more,
        f"data.train={options.data.resolve()}",
        f"training.steps={steps}",
        f"log.directory={run}",
    ]
    common.run_together([(words_of(options, ends, ranks, keys), {})])
    return common.read_metrics(run)


def curve(lines):
    """[(seconds, mean loss of the last steps)]"""
    at = list(itertools.accumulate(line["step_seconds"] for line in lines))
    losses = [line["loss"] for line in lines]
    return [(at[i], statistics.mean(losses[max(0, i + 1 - WINDOW):i + 1])) for i in range(len(at))]


def draw(curves, seconds):
    """An SVG of all curves."""
    wide, high, left, top, right, bottom = 720, 420, 50, 20, 170, 40
    losses = [loss for points in curves.values() for at, loss in points if at <= seconds]
    low, most = min(losses), min(max(losses), 4.0)
    x = lambda at: left + (wide - left - right) * at / seconds
    y = lambda loss: top + (high - top - bottom) * (most - min(loss, most)) / (most - low)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="white"/>',
    ]
    for tick in range(5):
        at, loss = seconds * tick / 4, low + (most - low) * tick / 4
        out.append(
            f'<text x="{x(at):.0f}" y="{high - bottom + 18}" text-anchor="middle">{at:.0f} s</text>'
        )
        out.append(
            f'<text x="{left - 6}" y="{y(loss) + 4:.0f}" text-anchor="end">{loss:.2f}</text>'
        )
        out.append(
            f'<line x1="{left}" x2="{wide - right}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" '
            'stroke="#ddd"/>'
        )
    for row, ((name, points), colour) in enumerate(zip(curves.items(), COLOURS)):
        path = " ".join(f"{x(at):.1f},{y(loss):.1f}" for at, loss in points if at <= seconds)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out.append(
            f'<text x="{wide - right + 10}" y="{top + 14 + 18 * row}" fill="{colour}">{name}</text>'
        )
    out.append(
        f'<text x="{left}" y="{high - 6}">training loss (mean of {WINDOW} steps) against time'
        "</text></svg>"
    )
    return "\n".join(out) + "\n"


def compare(options, ends):
    alone = train(options, ends, "BSP", 12, ["parallel.delay="])
    delay = statistics.median(line["step_seconds"] for line in alone[4:])
    print(
        f"a step of both at full speed {1e3 * delay:.0f} ms; rank 1 then sleeps so long in each",
        flush=True,
    )
    curves, rows = {}, []
    for name in WAYS:
        more = [f"parallel.delay=1:{delay:.4f}"]
        tried = train(options, ends, name, 32, more)[16:]
        steps = options.seconds / statistics.mean(line["step_seconds"] for line in tried)
        lines = train(options, ends, name, max(2, round(steps / 16)) * 16, more)
        points = curve(lines)
        within = [loss for at, loss in points if at <= options.seconds]
        curves[name] = points
        rows.append(
            (name, f"{16 * len(lines) / points[-1][0]:.1f}", len(within), f"{within[-1]:.3f}")
        )
        print(f"{name}: {len(lines)} steps in {points[-1][0]:.0f} s", flush=True)
    report.table(("", "samples/s", "steps", f"loss after {options.seconds:.0f} s"), rows)
    if options.svg:
        options.svg.write_text(draw(curves, options.seconds))


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("data/bible-train"))
    parser.add_argument("--seconds", type=float, default=45, help="of each way (45)")
    parser.add_argument("--svg", type=pathlib.Path, help="where the figure goes")
    options = common.parse(parser)
    options.echelon = pathlib.Path(options.echelon).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        ends = link.Link(pathlib.Path(scratch))
        why = link.why_not(options) or ends.build()
        try:
            if why:
                raise SystemExit(why)
            (ends.folder / "run.yaml").write_text("log: {every: 1000000}\n")
            compare(options, ends)
        finally:
            ends.remove()


if __name__ == "__main__":
    main()
