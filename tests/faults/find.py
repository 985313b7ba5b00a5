# SPDX-License-Identifier: Apache-2.0
"""Looks for a test that catches a fault: cheap tests of the fault's room first."""
import collections
import concurrent.futures
import json
import queue
import re
import threading

import records
import scratch

LONGEST_S = 90
SLOWEST_S = 25 # of a test that is tried at all
MEASURED_S = 25 # longer ones are not used
BATCHES = (1, 2, 5) # tests that are built together: at first, then, and from there on

# Rooms whose tests show most of what a room does, beside its own.
SHOWN_BY = {
    "base": ["config", "data", "checkpoint"], "config": ["layout"], "device": ["kernel"],
    "tensor": ["layer", "checkpoint", "layout"], "comm": ["layer", "data"],
    "kernel": ["layer", "optim"],
    "layer": ["model", "schedule"], "optim": ["layout"], "model": ["layer", "layout", "schedule"],
    "layout": ["schedule", "check", "checkpoint", "simulate"],
    "schedule": ["check", "simulate", "draw"], "simulate": [], "draw": [], "check": ["simulate"],
    "data": [], "checkpoint": [], "exec": [],
}
# Tests of the whole, and the variables that make them quick.
WHOLE = [("app/lattice", {"ECHELON_SHARE": "0/64"}), ("app/lattice", {"ECHELON_SHARE": "1/16"})]
WHOLE_NOUNS = """
    alike_steps asynchronous backups boundary carried central copies delayed documents experts
    expert_metrics fp16 grid_activations grid_counts hogwild init_from
    layer_state logistic loss_scale mixed nonfinite offload_activations offload_optimizer
    offload_peer once optimizers overlap pipeline_bits pipeline_counts pipeline_resume
    plan_report powersgd pushes pytorch queues quiet_step recompute recompute_plans ring
    rounds router_bias sampler sampling servers shared_experts spaces step_profile topk train verify
    zero zero_table zero_weights""".split()
HEADER = "# Faults of src/{}. tests/faults/records.py explains the format.\n"
NEVER = re.compile(r"_(portable|avx\w*)$|emulated|cuda|ucx|mpi_|hugging|fuzz|objects_|transient")


def key_of(test, variables):
    return " ".join([*(f"{k}={v}" for k, v in sorted(variables.items())), test])


class Finder:
    def __init__(self, known, trees, lists, effort_s):
        self.lists, self.lock, self.effort_s = lists, threading.Lock(), effort_s
        self.free = queue.Queue()
        for tree in trees:
            self.free.put(tree)
        self.tests = trees[0].tests
        self.folder = trees[0].folder.parent
        self.times_file = self.folder / "times.json"
        self.times = json.loads(self.times_file.read_text()) if self.times_file.exists() else {}
        self.by_file, self.by_room = collections.Counter(), collections.Counter()
        self.tried, self.sound = collections.Counter(), set()
        for fault in known:
            if fault.test:
                self.learn(fault, key_of(fault.test, fault.variables))

    def learn(self, fault, key):
        self.by_file[fault.file, key] += 1
        self.by_room[fault.id.partition("/")[0], key] += 1

    def candidates(self, fault):
        """(test, variables) in the order in which they are tried."""
        room = fault.id.partition("/")[0]
        rooms = [room, *SHOWN_BY.get(room, [])]
        noun = fault.file.split("/")[-1].rsplit(".", 1)[0]
        found = []
        every = [(test, {}) for test in self.tests if test.partition("/")[0] in rooms]
        for test, variables in every + WHOLE + [(f"app/{n}", {}) for n in WHOLE_NOUNS]:
            key = key_of(test, variables)
            seconds = self.times.get(key)
            if NEVER.search(test) or not self.tests.get(test) or seconds is None or \
                    seconds > SLOWEST_S:
                continue
            chance = {room: 0.06, "app": 0.02 if room != "exec" else 0.04}.get(
                test.partition("/")[0], 0.02)
            words = set(noun.split("_")) & set(test.partition("/")[2].split("_"))
            chance += 0.4 * bool(words) + 0.25 * min(self.by_file[fault.file, key], 3)
            chance += 0.3 * self.by_room[room, key] / (4 + self.tried[room, key])
            found.append((chance / (seconds + 0.5), test, variables))
        found.sort(key=lambda c: -c[0])
        return [(test, variables) for _, test, variables in found]

    def measure(self, tree, faults):
        """Times tests without a fault; those that do not pass are not used."""
        wanted = {}
        for fault in faults:
            room = fault.id.partition("/")[0]
            for test in self.tests:
                if test.partition("/")[0] in [room, *SHOWN_BY.get(room, [])]:
                    wanted[key_of(test, {})] = (test, {})
        for test, variables in WHOLE + [(f"app/{noun}", {}) for noun in WHOLE_NOUNS]:
            wanted[key_of(test, variables)] = (test, variables)
        wanted = {key: t for key, t in wanted.items() if key not in self.times and
                  not NEVER.search(t[0]) and self.tests.get(t[0])}
        print(f"measuring {len(wanted)} tests", flush=True)
        tree.make([test for test, _ in wanted.values()], keep_going=True)
        for key, (test, variables) in wanted.items():
            result, seconds, _ = tree.test(test, variables, MEASURED_S)
            self.times[key] = seconds if result == "passed" else None
            self.times_file.write_text(json.dumps(self.times, indent=1, sort_keys=True))

    def is_sound(self, tree, fault, text, test, variables):
        """Whether a test that failed passes without the fault."""
        key = key_of(test, variables)
        if key not in self.sound:
            tree.write(fault.file, text)
            tree.make([test])
            if tree.test(test, variables, LONGEST_S)[0] == "passed":
                self.sound.add(key)
            else:
                print(f"{key} fails without a fault", flush=True)
                self.times[key] = None
            tree.write(fault.file, records.apply(fault, text))
            tree.make([test])
        return key in self.sound

    def attempt(self, tree, fault):
        """Returns (verdict, seconds of tests)."""
        text = (tree.source / fault.file).read_text()
        room, spent, candidates = fault.id.partition("/")[0], 0, self.candidates(fault)
        try:
            tree.write(fault.file, records.apply(fault, text))
            sizes = list(BATCHES)
            while candidates and spent < self.effort_s:
                size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
                batch, candidates = candidates[:size], candidates[size:]
                error = tree.make([test for test, _ in batch])
                if error:
                    return "uncompilable", spent
                for test, variables in batch:
                    key = key_of(test, variables)
                    if self.times[key] is None:
                        continue
                    limit = max(40, 6 * self.times[key])
                    result, seconds, _ = tree.test(test, variables, limit)
                    spent += seconds
                    with self.lock:
                        self.tried[room, key] += 1
                    if result == "passed":
                        self.sound.add(key)
                    if result == "failed" and not self.is_sound(tree, fault, text, test, variables):
                        continue
                    if result == "failed":
                        fault.test, fault.variables = test, variables
                        return "caught", spent
                    if result == "late":
                        return "late", spent
            return "survived", spent
        finally:
            tree.write(fault.file, text)

    def job(self, fault):
        tree = self.free.get()
        try:
            return fault, *self.attempt(tree, fault)
        finally:
            self.free.put(tree)


def find(drawn, known, trees, lists, effort_s):
    """Adds the faults that are caught to the lists; others are printed, and survivors kept in
    SCRATCH/survivors.txt."""
    finder = Finder(known, trees, lists, effort_s)
    finder.measure(trees[0], drawn)
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        pending = [pool.submit(finder.job, fault) for fault in drawn]
        for number, done in enumerate(concurrent.futures.as_completed(pending), 1):
            fault, verdict, seconds = done.result()
            counts[verdict] += 1
            print(f"{number:4}/{len(drawn)} {verdict:12} {fault.id:40} {fault.verdict():40} "
                  f"{seconds:.1f} s", flush=True)
            if verdict == "caught":
                with finder.lock:
                    finder.learn(fault, key_of(fault.test, fault.variables))
                path = lists / f"{fault.id.partition('/')[0]}.txt"
                if not path.exists():
                    path.write_text(HEADER.format(path.stem))
                with path.open("a") as out:
                    out.write("\n" + fault.text())
            elif verdict == "survived":
                with (finder.folder / "survivors.txt").open("a") as out:
                    out.write(fault.text() + "\n")
    print(", ".join(f"{n} {v}" for v, n in counts.items()))
