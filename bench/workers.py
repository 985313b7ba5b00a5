# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: two workers and a server, one of the workers at half speed.

It sleeps in each of its steps as long as the other computes. Synchronous servers wait for it in
each step (BSP); under bounded staleness (SSP) the other waits for all steps but the bound; under
asynchronous parallel training (ASP) never. What counts is samples per second of both, of whole
spans. """
import statistics

import common
import report
import train_step

SHAPE = "gpt2-6x384"
SPAN, SPANS = 16, 2  # steps; spans that are timed, after one that is not
STRATEGIES = {
    "BSP": ["parallel.strategy=parameter_server"],
    "SSP, staleness 2": [
        "parallel.strategy=ssp",
        "parallel.staleness=2",
        f"parallel.flush_every={SPAN}",
    ],
    "ASP": ["parallel.strategy=asp", f"parallel.flush_every={SPAN}"],
}
WANTED = 1.4  # ASP's samples per second over BSP's


def train(bench, shape, delay, words):
    """Seconds of a step, so of two pushes; the share of time in which workers wait; staleness."""
    run = bench.folder / f"run-{len(list(bench.folder.glob('run-*')))}"
    keys = train_step.step_keys(shape, bench.folder, (1 + SPANS) * SPAN, 2)
    keys += ["--ranks", "3", "parallel.threads=1", "parallel.comm=local", f"log.directory={run}",
             *([f"parallel.delay=1:{delay:.4f}"] if delay else []), *words]
    common.run_together(
        [(common.echelon_words(bench.echelon, ["train"], keys, bench.folder, "0-1"), {})]
    )
    lines = common.read_metrics(run)[SPAN:]
    known = [line["idle"] for line in lines if line["idle"] is not None]
    return (statistics.mean(line["step_seconds"] for line in lines), statistics.mean(known),
            statistics.mean(line.get("staleness", 0) for line in lines))


def run(bench):
    report.title(f"Two workers, one at half speed, and a server: {SHAPE}, one sample a push")
    shape = train_step.shape_of(bench, SHAPE) | dict(batch=1)
    common.write_tokens(shape, bench.folder)
    even = statistics.median(
        train(bench, shape, 0, STRATEGIES["BSP"])[0] for _ in range(bench.rounds)
    )
    seen = {name: [] for name in STRATEGIES}
    for _ in range(bench.rounds):
        for name, words in STRATEGIES.items():
            seen[name].append(train(bench, shape, even, words))
    rate = {name: 2 / statistics.median(row[0] for row in rows) for name, rows in seen.items()}
    report.table(
        ("", "samples/s", "over BSP's", "workers wait", "staleness"),
        [
            ("BSP, both at full speed", f"{2 / even:.1f}", "", "", ""),
            *(
                (
                    name,
                    f"{rate[name]:.1f}",
                    f"{rate[name] / rate['BSP']:.2f}",
                    f"{100 * statistics.median(row[1] for row in rows):.0f}%",
                    f"{statistics.median(row[2] for row in rows):.2f}",
                )
                for name, rows in seen.items()
            ),
        ],
    )
    bench.verdict("one of two workers at half speed: ASP's samples per second over BSP's",
                  rate["ASP"] / rate["BSP"], WANTED)
    bench.verdict("SSP's over BSP's", rate["SSP, staleness 2"] / rate["BSP"], 0.97)
    bench.verdict("SSP's over ASP's", rate["SSP, staleness 2"] / rate["ASP"], 1.03, least=False)
