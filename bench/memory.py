# SPDX-License-Identifier: Apache-2.0
"""A part of speed.py: peak memory of a training step besides weights, gradients and the optimizer's
states: activations, logits, gradients of activations, scratch.

Echelon's number is the plan's (working memory of `echelon plan --json`). The arena of a run
(peak_bytes of its metrics.jsonl) must be the plan's, and tests compare live memory with the plan.
PyTorch's number is the peak of its allocator during a forward and backward, above the memory
before them, as its profiler records it. Gradients of weights do not count, and neither do buffers
that libraries allocate without PyTorch. The best variant that has all logits at the same time is
compared, and the best of those that have not. As a check, the peak resident memory of each process
is printed. """
import json

import common
import report
import torch_step
import train_step
from common import torch

MIB = 1 << 20
WANTED = 0.5  # of PyTorch's

# ---- PyTorch ----


def walk(events):
    for event in events:
        yield event
        yield from walk(event.children)


def allocations(profile):
    """(pointer, bytes; negative where it is given back) in order of time."""
    tree = profile.profiler.kineto_results.experimental_event_tree()
    found = [event for event in walk(tree) if event.name == "[memory]"]
    found.sort(key=lambda event: event.start_time_ns)
    return [(event.extra_fields.ptr, event.extra_fields.alloc_size) for event in found]


def peak_without(events, kept):
    """The most that was handed out at any time, leaving out what lies at the pointers `kept` in the
    end."""
    last = {pointer: number for number, (pointer, size) in enumerate(events)
            if size > 0 and pointer in kept}
    now = most = 0
    began = set()
    for number, (pointer, size) in enumerate(events):
        if last.get(pointer) == number:
            continue
        if size > 0:
            began.add(pointer)
        elif pointer not in began:
            continue  # it was there before
        else:
            began.discard(pointer)
        now += size
        most = max(most, now)
    return most


def torch_rank(job):
    """Prints {"bytes", "resident"}."""
    trainer = torch_step.begin(job)
    for _ in range(job["steps"]):
        trainer.step()
    resident = read_status("VmHWM")
    trainer.optimizer.zero_grad()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True) as profile:
        trainer.accumulate(0)
    gradients = {parameter.grad.untyped_storage().data_ptr()
                 for parameter in trainer.model.parameters()}
    events = allocations(profile)
    assert gradients <= {pointer for pointer, _ in events}, "a gradient that nobody allocated"
    print(json.dumps(dict(bytes=peak_without(events, gradients), resident=resident)))


def read_status(name):
    """Bytes."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))


def run_torch(bench, shape, variant):
    # Memory goes back to the system at once, so that what is resident says what is needed.
    job = dict(shape=shape, variant=torch_step.VARIANTS[variant], ranks=1,
               threads=train_step.THREADS, samples=shape["batch"], micro_batches=1, steps=3,
               compute="fp32", variables={})
    return common.run_torch(__file__, 1, train_step.THREADS, job, bench.folder)


# ---- Echelon ----


def run_echelon(bench, shape, run):
    """Returns (the plan's working memory, bytes resident)."""
    threads, keys = train_step.THREADS, train_step.step_keys(shape, bench.folder, 3)
    keys += ["parallel.comm=local", f"log.directory={run}"]
    printed, _ = common.call_echelon(bench.echelon, ["plan", "--json"], 1, threads, keys,
                                     bench.folder)
    memory = json.loads(printed)["plans"][0]["memory"]
    keys += ["--ranks", "1", f"parallel.threads={threads}"]
    words = common.echelon_words(bench.echelon, ["train"], keys, bench.folder, f"0-{threads - 1}")
    resident = common.together([(words, {})])["most_resident"]
    arenas = {line["peak_bytes"] for line in common.read_metrics(run)}
    assert arenas == {memory["arena_bytes"]}, f"the plan's arena is another: {arenas}"
    return memory["working"], resident


def measure(bench, name):
    shape = train_step.shape_of(bench, name)
    common.write_tokens(shape, bench.folder)
    working, resident = run_echelon(bench, shape, bench.folder / f"memory-{name}")
    theirs = {
        variant: run_torch(bench, shape, variant) for variant in torch_step.variants(bench.quick)
    }
    ours = working["bytes"]
    print(
        f"Echelon's plan, MiB, at {working['step']} of a step: "
        + ", ".join(
            f"{kind} {bytes / MIB:.1f}" for kind, bytes in working["by_kind"].items() if bytes
        )
    )
    rows = [("Echelon", f"{ours / MIB:.1f}", f"{resident / MIB:,.0f}", "1")]
    rows += [(f"PyTorch {variant}", f"{seen['bytes'] / MIB:.1f}",
              f"{seen['resident'] / MIB:,.0f}", f"{seen['bytes'] / ours:.2f}")
             for variant, seen in theirs.items()]
    report.table(("MiB", "live at a time", "most resident", "over Echelon's"), rows)
    for chunked in (False, True):
        least = min((seen["bytes"] for variant, seen in theirs.items()
                     if bool(torch_step.VARIANTS[variant]["rows"]) == chunked), default=None)
        if least is not None:
            bench.verdict(f"{name}: activations and logits over PyTorch's" +
                          (" with chunked loss" if chunked else ""), ours / least, WANTED,
                          least=False)


def run(bench):
    for name in bench.shapes_of(train_step.WANTED):
        report.title(f"Memory of a step besides weights, gradients and optimizer: {name}")
        measure(bench, name)


if __name__ == "__main__":
    torch_rank(json.loads(common.parser(__doc__).parse_args().rank))
