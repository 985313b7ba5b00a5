#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The partitioner on the layer profiles that PipeDream's authors published (Narayanan et al. 2019).

    pipedream.py PRINT_PARTITIONS

Reads NETWORK.graph.txt from the folder in ECHELON_PIPEDREAM, or ../shared/data/pipedream beside the
project; exit code 77 without it. A profile has one line for each node, with milliseconds and bytes,
and one for each edge. A network is cut only where a single tensor crosses, as ours cuts between
blocks.

Our partitioner is compared with a second program for the cost function in src/layout/partition.h.
For VGG-16 on 16 workers PipeDream's planner gives 12-3-1 on machines of 4, and 8-7-1 on machines of
8: 15 workers on the convolutions, and one on the classifier and the last two convolutions. Its cost
function gives the same here. PipeDream sums gradients after each micro-batch. In steps of 15
micro-batches 15 replicas of ours do so, too, and it finds 15-1 with the same cut.
"""
import math
import os
import pathlib
import re
import subprocess
import sys

NETWORKS = ("vgg16", "alexnet", "gnmt", "gnmt_large", "resnet18", "squeezenet1_0")
GBIT = 1e9 / 8
# Workers of a machine, bytes per second inside and between: PipeDream's clusters A and B, and 16
# workers on one network.
MACHINES = ((4, 8e9, 10 * GBIT), (8, 30e9, 25 * GBIT), (16, 10 * GBIT, 10 * GBIT))
PUBLISHED = {4: [12, 3, 1], 8: [8, 7, 1]}  # workers of a machine: replicas of VGG-16's stages
WORKERS, TURNS = 16, 1000


def find_folder():
    beside = pathlib.Path(__file__).resolve().parents[3].parent / "shared/data/pipedream"
    folder = pathlib.Path(os.environ.get("ECHELON_PIPEDREAM", beside))
    if not folder.is_dir():
        print(f"skipped: no folder {folder}; ECHELON_PIPEDREAM names the one with the profiles")
        sys.exit(77)
    return folder


def read_graph(path):
    """Nodes by name: (forward, backward, activation bytes, parameter bytes), and the edges."""
    nodes, edges = {}, []
    for line in path.read_text(encoding="utf-8").splitlines():
        parts = line.strip().split(" -- ")
        if len(parts) == 2:
            edges.append(tuple(parts))
        elif len(parts) > 2:
            read = not parts[1].startswith("Input")  # PipeDream does not charge for this
            found = dict(re.findall(r"(\w+)=([0-9.]+|\[[^\]]*\])(?:,|$)", parts[-1]))
            activations = found["activation_size"].strip("[]").split("; ")
            nodes[parts[0]] = (read * float(found["forward_compute_time"]) / 1e3,
                               float(found["backward_compute_time"]) / 1e3,
                               sum(map(float, activations)), float(found["parameter_size"]))
    return nodes, edges


def sort_nodes(nodes, edges):
    before = {name: set() for name in nodes}
    for a, b in edges:
        before[b].add(a)
    done = []
    while len(done) < len(nodes):
        ready = [n for n in nodes if n not in done and before[n] <= set(done)]
        done.append(min(ready, key=lambda n: int(n.removeprefix("node"))))
    return done


def blocks_of(path):
    """[(forward, backward, boundary bytes, parameter bytes)] of runs of nodes that one tensor
    leaves."""
    nodes, edges = read_graph(path)
    order = sort_nodes(nodes, edges)
    place = {name: i for i, name in enumerate(order)}
    blocks, own = [], [0.0, 0.0, 0.0, 0.0]
    for i, name in enumerate(order):
        forward, backward, _, params = nodes[name]
        own = [own[0] + forward, own[1] + backward, 0.0, own[3] + params]
        crossing = {a for a, b in edges if place[a] <= i < place[b]}
        if len(crossing) == 1 or i == len(order) - 1:
            own[2] = sum(nodes[a][2] for a in crossing)
            blocks.append(tuple(own))
            own = [0.0, 0.0, 0.0, 0.0]
    return blocks


def sums(blocks, column):
    out = [0.0]
    for block in blocks:
        out.append(out[-1] + column(block))
    return out


class Ours:
    """The cost function of src/layout/partition.h, without ZeRO, memory and latency."""

    def __init__(self, blocks, machine, micro_batches):
        self.blocks, self.machine, self.micro_batches = blocks, machine, micro_batches
        self.forward, self.backward = sums(blocks, lambda b: b[0]), sums(blocks, lambda b: b[1])
        self.params = sums(blocks, lambda b: b[3])

    def link(self, a, b):
        node, inside, between = self.machine
        return inside if a // node == b // node else between

    def message(self, j, a, b):
        ends = j in (0, len(self.blocks))
        return 0 if ends else int(self.blocks[j - 1][2]) / self.link(a, b)

    def stage(self, i, j, first, q):
        n, last = math.ceil(self.micro_batches / q), first + q - 1
        f, b = self.forward[j] - self.forward[i], self.backward[j] - self.backward[i]
        params = self.params[j] - self.params[i]
        summed = 2 * (q - 1) / q * params / self.link(first, last)
        busy = (n - 1) * (f + b) + f + max(b, summed)
        links = self.message(i, first - 1, last) + self.message(j, first, last + 1)
        return max(TURNS * busy - (f + b), (TURNS * n - 1) * links)

    def step(self, stages):
        """stages: [(first block, replicas)]."""
        first, most, passed = 0, 0, self.forward[-1] + self.backward[-1]
        ends = [s[0] for s in stages[1:]] + [len(self.blocks)]
        for (i, q), j in zip(stages, ends):
            most = max(most, self.stage(i, j, first, q))
            passed += 2 * self.message(j, first, first + q)
            first += q
        return (passed + most) / TURNS

    def optimum(self, number):
        """The smallest maximum over stages with `number` stages, by forward recursion over the
        blocks and workers used so far."""
        n = len(self.blocks)
        best = {(0, 0): 0.0}
        for s in range(number):
            later, after = number - 1 - s, {}
            for (i, used), most in best.items():
                for q in range(1, WORKERS - used - later + 1):
                    if q > self.micro_batches or (later == 0 and used + q != WORKERS):
                        continue
                    for j in range(i + 1, n - later + 1) if later else (n,):
                        cost = max(most, self.stage(i, j, used, q))
                        key = (j, used + q)
                        if cost < after.get(key, math.inf):
                            after[key] = cost
            best = after
        return best.get((n, WORKERS), math.inf)

    def most(self, stages):
        first, most = 0, 0
        ends = [s[0] for s in stages[1:]] + [len(self.blocks)]
        for (i, q), j in zip(stages, ends):
            most = max(most, self.stage(i, j, first, q))
            first += q
        return most


class PipeDream:
    """Seconds of a micro-batch as PipeDream's published planner estimates them, over two levels:
    workers of a machine, and machines. Messages cost nothing. A stage of q units, each of which
    takes T seconds for a micro-batch, takes (T + 4 (q - 1)/q w / bandwidth) / q. Of a stage that is
    alone in its range, the second term is divided by the workers of a unit, too."""

    def __init__(self, blocks, machine):
        self.n = len(blocks)
        width, inside, between = machine
        compute, self.params = sums(blocks, lambda b: b[0] + b[1]), sums(blocks, lambda b: b[3])
        alone = {(i, j): (compute[j] - compute[i], [(i, 1)])
                 for i in range(self.n) for j in range(i + 1, self.n + 1)}
        inner = self.level(alone, width, inside, 1)
        whole = {key[:2]: value for key, value in inner.items() if key[2] == width}
        machines = WORKERS // width
        self.found = self.level(whole, machines, between, width)[0, self.n, machines]

    def level(self, part, units, bandwidth, each):
        """(seconds, stages) of blocks i .. j - 1 on m units, by (i, j, m); part: on one unit."""
        best = {}
        for m in range(1, units + 1):
            for i, j in part:
                one = self.stage(part, i, j, m, bandwidth * each)
                for k in range(i + 1, j):
                    for rest in range(1, m):
                        front = best[i, k, m - rest]
                        back = self.stage(part, k, j, rest, bandwidth)
                        if max(front[0], back[0]) < one[0]:
                            one = (max(front[0], back[0]), front[1] + back[1])
                best[i, j, m] = one
        return best

    def stage(self, part, i, j, q, bandwidth):
        seconds, stages = part[i, j]
        summed = 4 * (q - 1) / q * (self.params[j] - self.params[i]) / bandwidth
        return (seconds + summed) / q, [(first, replicas * q) for first, replicas in stages]


def check_vgg16(blocks, machine, found):
    """15 workers and one, whose blocks begin where PipeDream's planner has them begin."""
    wrong, published = [], PUBLISHED.get(machine[0])
    if [q for _, q in found] != [WORKERS - 1, 1]:
        wrong.append(f"vgg16: {found}: not 15 workers and one")
    print(f"ours: {found}")
    if published:
        seconds, theirs = PipeDream(blocks, machine).found
        print(f"PipeDream's planner on machines of {machine[0]}: {theirs}, {1e3 * seconds:.1f} ms")
        if [q for _, q in theirs] != published or theirs[-1] != found[-1]:
            wrong.append(f"vgg16: PipeDream's planner gives {theirs}, not {published}")
    return wrong


def search(program, blocks, machine, micro_batches):
    """[(seconds, [(first block, replicas)])], the shortest step first."""
    words = [WORKERS, *machine, micro_batches, TURNS, 1, len(blocks)]
    words += [number for b in blocks for number in (b[0], b[1], int(b[2]), int(b[3]))]
    done = subprocess.run([program], input=" ".join(map(repr, words)), capture_output=True,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"FAILED: {program}: {done.stderr}")
    found = []
    for line in done.stdout.splitlines():
        seconds, *stages = line.split()
        found.append((float(seconds), [tuple(map(int, s.split(":"))) for s in stages]))
    return found


def compare(program, name, blocks, machine, micro_batches):
    """Every partition's seconds, and its maximum against the optimum of as many stages."""
    wrong, ours = [], Ours(blocks, machine, micro_batches)
    found = search(program, blocks, machine, micro_batches)
    for seconds, stages in found:
        if not math.isclose(seconds, ours.step(stages), rel_tol=1e-9):
            wrong.append(f"{name}: {stages} takes {seconds} s, not {ours.step(stages)}")
    unequal = {}
    for _, stages in found:
        number = len(stages)
        unequal[number] = min(unequal.get(number, math.inf), ours.most(stages))
    for number in (1, 2, 3, 4):
        optimum = ours.optimum(number)
        if math.isfinite(optimum) and not math.isclose(unequal.get(number, math.inf), optimum,
                                                       rel_tol=1e-9):
            wrong.append(f"{name}: {number} stages: {unequal.get(number)}, the optimum is "
                         f"{optimum}")
    best = found[0]
    replicas = "-".join(str(q) for _, q in best[1])
    print(f"{name}: {len(blocks)} blocks, machines of {machine[0]}, {micro_batches} micro-batches: "
          f"{replicas}, {best[0] / micro_batches * 1e3:.1f} ms a micro-batch")
    return wrong, best[1]


def main():
    program, folder, wrong = sys.argv[1], find_folder(), []
    for name in NETWORKS:
        blocks = blocks_of(folder / f"{name}.graph.txt")
        for machine in MACHINES:
            for micro_batches in (15, 16, 240):
                more, stages = compare(program, name, blocks, machine, micro_batches)
                wrong += more
                if name == "vgg16" and micro_batches == WORKERS - 1:
                    wrong += check_vgg16(blocks, machine, stages)
    for line in wrong:
        print("FAILED:", line)
    sys.exit(1 if wrong else 0)


main()
