# SPDX-License-Identifier: Apache-2.0
"""The survey's experiment: loss against time of ways to train one model on two machines, of which
one is slow.

    ./quickstart.sh                                     # makes data/bible-train and -valid
    sudo python bench/survey.py --svg docs/workers.svg  # idle machine, 1-2 hours
    sudo python bench/survey.py --seeds 1 --only BSP ASP --seconds 10    # a try

The machines are two network namespaces joined by link.py's link of 1 Gbit. The ranks of the second
machine sleep in each training step as long as a step of BSP takes at full speed. All ways read the
same samples a step, and take the same optimizer at the same rate, for the same number of seconds.
Two cases: a model whose computing takes most of a step, and one whose gradients take most of it
(many parameters, few samples), where the link is the bottleneck.

Data parallel ways have a replica on each machine: BSP (gradients are summed in each step), SSP and
ASP (a server on the second machine updates at each push). Others cut the model in two, where
parallel.partition = auto says, which knows the slow rank: model parallelism (one micro-batch at a
time), the pipeline that is flushed in each step (1F1B), PipeDream and PipeDream-2BW. The hybrid is
1F1B with two replicas of each stage, two ranks on each machine's core.

The figure has, for each case, training loss and validation loss against time (mean and range of the
seeds), and bars: where the ranks' time goes, and samples a second. Time without validations counts.
A push has the time of serves.jsonl. ASP has one span, longer than the time that is shown, so
workers never wait for each other. Its validation losses are of runs that repeat the first pushes of
the log (parallel.serve_log) and end there."""

import dataclasses
import itertools
import json
import math
import pathlib
import statistics
import tempfile

import common
import link
import report
import survey_figure

KEYS = [
    "model.architecture=gpt2",
    "model.num_attention_heads=4",
    "model.tie_word_embeddings=false",
    "data.sequence_length=128",
    "training.check_every=0",
    "training.validate_samples=32",
    "optimizer.learning_rate=1e-3",
    "optimizer.schedule=constant",
    "checkpoint.every=0",
    "parallel.threads=1",
    "log.every=1000000",
]
CASES = {
    "computing": [
        "model.hidden_size=256",
        "model.num_hidden_layers=4",
        "training.global_batch_size=16",
        "training.micro_batch_size=2",
    ],
    "the link": [
        "model.hidden_size=512",
        "model.num_hidden_layers=6",
        "training.global_batch_size=4",
        "training.micro_batch_size=1",
    ],
}
CUT = ["parallel.pipeline=2", "parallel.partition=auto"]


@dataclasses.dataclass
class Way:
    here: int  # ranks of the first machine
    there: int  # of the second, the slow one, without servers
    words: list
    servers: int = 0
    span: str = ""  # "some": flushed as often as validated; "one": only at the end


WAYS = {
    "BSP": Way(1, 1, ["parallel.data=2"]),
    "SSP, staleness 2": Way(1, 1, ["parallel.strategy=ssp", "parallel.staleness=2"], 1, "some"),
    "ASP": Way(1, 1, ["parallel.strategy=asp"], 1, "one"),
    "model parallelism": Way(1, 1, [*CUT, "parallel.schedule=naive"]),
    "pipeline, 1F1B": Way(1, 1, [*CUT, "parallel.schedule=1f1b"]),
    "PipeDream": Way(1, 1, [*CUT, "parallel.schedule=pipedream"], span="some"),
    "PipeDream-2BW": Way(1, 1, [*CUT, "parallel.schedule=pipedream-2bw"], span="some"),
    "hybrid": Way(2, 2, [*CUT, "parallel.data=2", "parallel.schedule=1f1b"]),
}
VALIDATIONS = 6
WINDOW = 12  # steps, of which losses are averaged
TRIED = 16  # steps of a run that says how many steps a way needs
REPEAT = ["parallel.comm=local", "parallel.delay="]  # of runs that repeat pushes


# ---- runs ----


@dataclasses.dataclass
class Curves:
    """Of one run: seconds from the beginning, and losses."""

    trained: list  # [(seconds, mean loss of the last steps)]
    validated: list  # [(seconds, loss)]
    idle: float  # the share of a rank's time in which it waits
    rate: float  # samples a second


class Runner:
    """Runs of one case."""

    def __init__(self, options, ends, case):
        self.options, self.ends, self.case = options, ends, case
        self.samples = int(CASES[case][2].partition("=")[2])
        self.profile, self.delay, self.count = None, 0.0, 0

    def keys(self, words):
        data = self.options.data
        return [*KEYS, *CASES[self.case], f"data.train={data}-train", f"data.valid={data}-valid",
                *words]

    def folder(self):
        self.count += 1
        return self.ends.folder / f"{self.case.replace(' ', '-')}-{self.count}"

    def start(self, way, words):
        """Runs on both machines; returns the run's folder."""
        run, ranks = self.folder(), way.here + way.there + way.servers
        words = [self.options.echelon, "train", self.ends.folder / "run.yaml",
                 *self.keys([*way.words, "parallel.comm=mpi", f"log.directory={run}", *words])]
        words = self.ends.words(words, 1 if ranks == 2 else 2)
        words[words.index("-H") + 1] = (f"{link.ADDRESSES[0]}:{way.here},"
                                        f"{link.ADDRESSES[1]}:{way.there + way.servers}")
        words[words.index("-n") + 1] = str(ranks)
        core = f"$((OMPI_COMM_WORLD_RANK >= {way.here}))"
        words = [word.replace("$((OMPI_COMM_WORLD_RANK % 2))", core) if isinstance(word, str)
                 else word for word in words]
        common.run_together([(words, {})])
        return run

    def measure(self):
        """What blocks cost, and how long a step of BSP takes at full speed."""
        self.profile = self.folder()
        common.run_together([([
            self.options.echelon, "profile", self.ends.folder / "run.yaml", "--ranks", "2", "--out",
            self.profile, *self.keys(["training.steps=8", "parallel.comm=local",
                                      f"log.directory={self.folder()}"])], {})])
        alone = common.read_metrics(self.start(WAYS["BSP"], ["training.steps=12"]))
        self.delay = statistics.median(line["step_seconds"] for line in alone[4:])
        print(f"bound by {self.case}: a step of BSP at full speed takes {1e3 * self.delay:.0f} ms; "
              "the second machine's ranks sleep so long in each step", flush=True)

    def slowed(self, way, seed):
        slow = range(way.here, way.here + way.there)
        return ["parallel.delay=" + " ".join(f"{rank}:{self.delay:.4f}" for rank in slow),
                f"parallel.profile={self.profile}", f"training.seed={seed}"]

    def length(self, way):
        """Steps that take at least the time that is shown."""
        words = [*self.slowed(way, 1), f"training.steps={TRIED}"]
        lines = common.read_metrics(self.start(way, [*words, *spans(way, TRIED, TRIED)]))
        each = statistics.mean(line["step_seconds"] for line in lines[TRIED // 4:])
        return 1.2 * self.options.seconds / each

    def train(self, name, seed, steps):
        """Curves up to the time that is shown; the run is longer."""
        way = WAYS[name]
        every = max(1, math.ceil(steps / VALIDATIONS))
        words = [*self.slowed(way, seed), f"training.steps={every * VALIDATIONS}",
                 *spans(way, every, every * VALIDATIONS)]
        if way.span != "one":
            words.append(f"training.validate_every={every}")
        run = self.start(way, words)
        curves = read_curves(run, self.samples, way.servers > 0)
        if way.span == "one":
            curves.validated = self.validate_prefixes(way, run, words)
        if curves.trained[-1][0] < self.options.seconds:
            return self.train(name, seed, 1.3 * steps)
        return cut(curves, self.options.seconds)

    def validate_prefixes(self, way, run, words):
        """Validation losses after first parts of the log's pushes."""
        start, pushes = read_pushes(run)
        begin, out = begin_of(common.read_metrics(run), pushes), []
        for number in range(1, VALIDATIONS + 1):
            until = begin + number * self.options.seconds / VALIDATIONS
            n = cut_pushes(pushes, until, start["workers"])
            folder = self.folder()
            log = folder.with_suffix(".jsonl")
            steps = n // start["workers"]
            write_pushes(log, start, pushes[:n], steps)
            common.run_together([([
                self.options.echelon, "train", self.ends.folder / "run.yaml", "--ranks",
                str(way.here + way.there + way.servers), *self.keys([
                    *way.words, *words, *REPEAT, f"training.steps={steps}",
                    f"parallel.flush_every={steps}", f"parallel.serve_log={log}",
                    f"log.directory={folder}"])], {})])
            out.append((pushes[n - 1]["time"] - begin, last_validation(folder)))
        return out


def spans(way, every, steps):
    length = {"": None, "some": every, "one": steps}[way.span]
    return [f"parallel.flush_every={length}"] if length else []


# ---- what runs have written ----


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def last_validation(run):
    return [line["valid_loss"] for line in read_lines(run / "metrics.jsonl")
            if "valid_loss" in line][-1]


def read_pushes(run):
    """The line of the start, and the pushes."""
    first, *pushes = read_lines(run / "serves.jsonl")
    return first, pushes


def begin_of(span, pushes):
    """When a span began: on rank 0, or where another worker was earlier, with its first push."""
    begin = span[0]["time"] - sum(line["step_seconds"] for line in span)
    return min(begin, pushes[0]["time"])


def cut_pushes(pushes, until, workers):
    """The length of a prefix that a run of its own can have made: a multiple of the workers, whose
    last push had begun when the push before it was served."""
    n = sum(push["time"] <= until for push in pushes)
    for end in range(max(n, workers), len(pushes) + 1):
        if end % workers == 0 and pushes[end - 1]["worker"] != pushes[end - 2]["worker"]:
            return end
    raise RuntimeError("no prefix of the pushes ends with two workers' pushes")


def write_pushes(path, start, pushes, steps):
    """A log of one span."""
    lines = [start | dict(span=steps), *(push | dict(step=steps) for push in pushes)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def step_times(lines):
    """Seconds from the beginning to the end of each step, without what is between spans."""
    return list(itertools.accumulate(line["step_seconds"] for line in lines))


def push_times(lines, pushes, workers):
    """As step_times, by the log of pushes: a step ends with its last push. A span's steps all end
    with it in the metrics."""
    out, done, at = [], 0.0, 0
    for _, span in itertools.groupby(lines, lambda line: line["time"]):
        span = list(span)
        took = sum(line["step_seconds"] for line in span)
        begin = begin_of(span, pushes[workers * at:])
        for step in range(at + 1, at + len(span) + 1):
            out.append(done + pushes[workers * step - 1]["time"] - begin)
        done, at = done + took, at + len(span)
    return out


def read_curves(run, samples, is_pushed):
    every = read_lines(run / "metrics.jsonl")
    lines = [line for line in every if "step_seconds" in line]
    if is_pushed:
        start, pushes = read_pushes(run)
        at = push_times(lines, pushes, start["workers"])
    else:
        at = step_times(lines)
    losses = [line["loss"] for line in lines]
    trained = [(at[i], statistics.mean(losses[max(0, i + 1 - WINDOW):i + 1]))
               for i in range(len(at))]
    whole = step_times(lines)
    validated = [(whole[line["step"] - 1], line["valid_loss"]) for line in every
                 if "valid_loss" in line]
    idle = [line["idle"] for line in lines if line["idle"] is not None]
    return Curves(trained, validated, statistics.mean(idle), samples * len(at) / whole[-1])


def between(points, at):
    """The value at a time, on the line between the two points beside it."""
    for (x, a), (y, b) in itertools.pairwise(points):
        if x <= at <= y:
            return a + (b - a) * ((at - x) / (y - x) if y > x else 0)
    return points[0][1] if at < points[0][0] else None


def cut(curves, seconds):
    """All points up to that time, and one there."""
    def end(points):
        inside = [point for point in points if point[0] <= seconds]
        last = between(points, seconds)
        return inside if last is None else [*inside, (seconds, last)]

    return dataclasses.replace(curves, trained=end(curves.trained), validated=end(curves.validated))


# ---- both cases ----


def compare(options, ends, case):
    """Prints a table; returns {way: [Curves of each seed]}."""
    runner, all_curves, rows = Runner(options, ends, case), {}, []
    runner.measure()
    for name in options.only or WAYS:
        steps = runner.length(WAYS[name])
        runs = [runner.train(name, seed, steps) for seed in range(1, options.seeds + 1)]
        all_curves[name] = runs
        rows.append((name, *(spread(values) for values in (
            [run.rate for run in runs], [100 * run.idle for run in runs],
            [run.trained[-1][1] for run in runs], [run.validated[-1][1] for run in runs]))))
        print(f"{name}: {len(runs[0].trained)} steps in {options.seconds:.0f} s", flush=True)
    report.table(("", "samples/s", "idle, %", "training loss", "validation loss"), rows)
    return all_curves


def spread(values):
    return f"{statistics.mean(values):.3f} [{min(values):.3f} {max(values):.3f}]"


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("data/bible"))
    parser.add_argument("--seconds", type=float, default=45, help="that are shown of each way (45)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(WAYS), help="these ways")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--svg", type=pathlib.Path, help="where the figure goes")
    options = common.parse(parser)
    options.echelon = pathlib.Path(options.echelon).resolve()
    options.data = options.data.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        ends = link.Link(pathlib.Path(scratch))
        why = link.why_not(options) or ends.build()
        try:
            if why:
                raise SystemExit(why)
            (ends.folder / "run.yaml").write_text("log: {every: 1000000}\n")
            found = {case: compare(options, ends, case) for case in options.cases}
        finally:
            ends.remove()
    if options.svg:
        options.svg.write_text(survey_figure.draw(found, options.seconds, WINDOW))


if __name__ == "__main__":
    main()
