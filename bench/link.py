# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: two data-parallel ranks of one thread over a link of 1 Gbit.

Each rank is in a network namespace with a host name of its own. A pair of virtual Ethernet devices
joins them, with `tc tbf` on both ends, so the ranks reach each other only by TCP over that link. A
step should take hardly longer than the longer of two times. The first is that of computing alone:
two independent runs of one rank at the same time, with a rank's share of the samples. The second is
that of sending a rank's bytes of a step, as its counters have them, at 1 Gbit/s. Needs root, `ip`,
`tc` and Open MPI. """
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time

import common
import report
import train_step

SHAPE, MICRO_BATCHES, RANKS = "gpt2-6x384", 4, 2
WANTED = 1.15  # of the longer time
RATE = 1e9  # bits a second
ADDRESSES = ("10.99.0.1", "10.99.0.2")
NETWORK = "10.99.0.0/24"
WORK = ("F", "B", "W")
SUMS = ("reduce_grads", "scatter_grads", "gather_weights")
HEADS = ("", "computing alone, ms", "MB sent", "at 1 Gbit/s, ms", "a step over the link, ms",
         "over the longer", "over computing")


def why_not(bench):
    """What is missing; None: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc", "unshare", "mpirun") if not shutil.which(tool)]
    if missing:
        return f"{', '.join(missing)} not found"
    version, _ = common.run_together([([bench.echelon, "--version"], {})], timed=False)[0]
    return None if "Open MPI" in version else "the ranks' launcher is not Open MPI"


class Link:
    """Two namespaces and what starts programs in them."""

    def __init__(self, folder):
        self.names = [f"echelon-{os.getpid()}-{end}" for end in "ab"]
        self.devices = [f"ech{os.getpid() % 100000}{end}" for end in "ab"]
        self.folder = folder

    def commands(self):
        for name in self.names:
            yield f"ip netns add {name}"
        (first, second), (one, other) = self.names, self.devices
        yield f"ip link add {one} netns {first} type veth peer name {other} netns {second}"
        for name, device, address in zip(self.names, self.devices, ADDRESSES):
            yield f"ip -n {name} address add {address}/24 dev {device}"
            yield f"ip -n {name} link set lo up"
            yield f"ip -n {name} link set {device} up"
            yield (f"ip netns exec {name} tc qdisc add dev {device} root "
                   "tbf rate 1gbit burst 256kb latency 50ms")

    def build(self):
        """Returns why there is none; None: there is."""
        for command in self.commands():
            done = subprocess.run(command.split(), capture_output=True, text=True)
            if done.returncode:
                return f"{command}: {done.stderr.strip()}"
        self.write_agent()
        return None

    def write_agent(self):
        """What mpirun starts its daemon on the other machine with, instead of ssh: HOST WORDS."""
        self.agent = self.folder / "agent.sh"
        self.agent.write_text("#!/bin/sh\nshift\n"
                              f"exec {' '.join(self.enter(1))} sh -c \"$*\"\n")
        self.agent.chmod(0o755)

    def enter(self, end):
        """Words before a program that runs at that end of the link."""
        name = self.names[end]
        return [
            "ip",
            "netns",
            "exec",
            name,
            "unshare",
            "--uts",
            "sh",
            "-c",
            f"'hostname {name} && exec \"$@\"'" if end else f'hostname {name} && exec "$@"',
            "sh",
        ]

    def place(self, end, words, variables):
        """A program of PyTorch's at that end, whose gloo takes the link."""
        variables["GLOO_SOCKET_IFNAME"] = self.devices[end]
        name = self.names[end]
        return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c",
                f'hostname {name} && exec "$@"', "sh", *words]

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def words(self, words, each=1):
        """So many ranks at each end, on the two cores in turn; those of one end have shared
        memory."""
        tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self" if each == 1 else "tcp,self,vader",
               "--mca", "btl_tcp_if_include", NETWORK, "--mca", "oob_tcp_if_include", NETWORK]
        return [*self.enter(0), "mpirun", "--allow-run-as-root", "--bind-to", "none",
                "-H", ",".join(f"{address}:{each}" for address in ADDRESSES),
                "-n", str(each * RANKS),
                "--mca", "plm_rsh_agent", self.agent, *tcp, "sh", "-c",
                'exec taskset -c "$((OMPI_COMM_WORLD_RANK % 2))" "$@"', "sh", *words]


# ---- runs ----


def seconds_of(bench, run):
    return [line["step_seconds"] for line in common.read_metrics(run)][bench.warmup:]


class Case:
    """Ranks that have so many micro-batches of so many samples."""

    def __init__(self, bench, samples, micro_batches):
        self.bench, self.samples, self.micro_batches = bench, samples, micro_batches
        self.shape = train_step.shape_of(bench, SHAPE) | dict(batch=samples)
        self.alone, self.together, self.bytes = [], [], 0

    def words(self, micro_batches, run, extra=()):
        keys = train_step.step_keys(self.shape, self.bench.folder,
                                    self.bench.warmup + self.bench.steps, micro_batches)
        keys += ["parallel.threads=1", f"log.directory={run}", *extra]
        return [self.bench.echelon, "train", self.bench.folder / "run.yaml", *keys]

    def new_run(self):
        return self.bench.folder / f"run-{time.monotonic_ns()}"

    def run_alone(self):
        runs = [self.new_run() for _ in range(RANKS)]
        common.run_together([
            (["taskset", "-c", str(core), *self.words(self.micro_batches, run, [
                "--ranks", "1", "parallel.comm=local"])], {}) for core, run in enumerate(runs)])
        for run in runs:
            self.alone += seconds_of(self.bench, run)

    def run_joined(self, link, extra=()):
        run = self.new_run()
        words = self.words(RANKS * self.micro_batches, run, ["parallel.comm=mpi", *extra])
        common.run_together([(link.words(words), {})])
        self.together += seconds_of(self.bench, run)
        self.bytes = max(line["bytes_sent"] for line in common.read_metrics(run)[1:])
        return run

    def row(self):
        alone, together = map(statistics.median, (self.alone, self.together))
        return (f"{self.micro_batches} x {self.samples} samples a rank", common.spread(self.alone),
                f"{self.bytes / 1e6:.1f}", f"{1e3 * self.transfer():.1f}",
                common.spread(self.together), f"{self.over():.3f}", f"{together / alone:.3f}")

    def transfer(self):
        return 8 * self.bytes / RATE

    def over(self):
        """The step's time over the longer of the two that it cannot be below."""
        return statistics.median(self.together) / max(
            statistics.median(self.alone), self.transfer()
        )


def show_overlap(run):
    """From a trace: where a step's time goes, by rank."""
    rows = []
    for path in sorted((run / "trace").glob("rank-*.json")):
        lists = {}
        for line in path.read_text().splitlines():
            event = json.loads(line[1:])  # after a bracket or a comma
            if event["ph"] == "X":
                lists.setdefault(event["args"]["list"], []).append(event)
        trained = [steps for steps in lists.values() if any(map(is_reduction, steps))]
        columns = [times(steps) for steps in trained[1:]]
        rows.append((path.stem, *(f"{1e-3 * statistics.median(column):.1f}"
                                  for column in zip(*columns))))
    report.table(("ms of a step", "until work ends", "reductions begin", "reductions end",
                  "step ends", "reducing"), rows)


def is_reduction(step):
    return step["cat"] in SUMS


def end_of(step):
    return step["ts"] + step["dur"]


def times(steps):
    """In microseconds."""
    begin = min(step["ts"] for step in steps)
    reduced = [step for step in steps if is_reduction(step)]
    return (max(end_of(step) for step in steps if step["cat"] in WORK) - begin,
            min(step["ts"] for step in reduced) - begin,
            max(map(end_of, reduced)) - begin,
            max(map(end_of, steps)) - begin,
            sum(step["dur"] for step in reduced))


def run(bench):
    report.title(f"Two ranks of one thread over a link of 1 Gbit: {SHAPE}")
    shape = train_step.shape_of(bench, SHAPE)
    common.write_tokens(shape, bench.folder)
    (bench.folder / "run.yaml").write_text("log: {every: 1000}\n")
    # The second is bound by the link, for scale.
    cases = [Case(bench, shape["batch"] // RANKS, MICRO_BATCHES), Case(bench, 1, 1)]
    with_link(bench, "two ranks over a link of 1 Gbit", lambda link: compare(bench, link, cases))


def with_link(bench, what, does):
    """Calls does(link) where there can be one."""
    link = Link(pathlib.Path(bench.folder))
    try:
        why = why_not(bench) or link.build()
        if why:
            bench.skip(what, why)
        else:
            does(link)
    finally:
        link.remove()


def compare(bench, link, cases):
    for _ in range(bench.rounds):
        for case in cases:
            case.run_alone()
            case.run_joined(link)
    report.table(HEADS, [case.row() for case in cases])
    for case in cases:
        if bench.quick or case.over() > WANTED:
            show_overlap(case.run_joined(link, ["log.trace=true"]))
    bench.verdict("2 ranks over 1 Gbit: step over the longer of computing and sending",
                  cases[0].over(), WANTED, least=False)
