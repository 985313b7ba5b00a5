# SPDX-License-Identifier: Apache-2.0
"""Bytes that a rank sends in a step, by axis, against the formulas of Narayanan et al. 2021
(arXiv:2104.04473, section 3) and against plans of small grids.

    pipeline   b s h elements of each micro-batch and boundary, each way, of which a tensor rank
               sends 1/t (section 4.1)
    tensor     8 b s h (t - 1)/t elements of each micro-batch and layer, and 4 more with full
               recomputation: two all-reduces, of 2 b s h (t - 1)/t elements each, in F, B and R
    data       2 (d - 1)/d of the gradients; zeros that fill up buckets are left out here

Our R leaves out its second all-reduce, because no backward reads the layer's output (-2), and
gathers the layer's input, of which each tensor rank has kept a shard (+1): 11 instead of 12. Four
things are not in the paper's formulas. Tensor ranks gather each boundary tensor (1). The embedding
and the head's input gradient need an all-reduce (2 each). The loss needs three statistics for each
token. The first and the last stage sum the gradients of the tied embedding.
"""
from fractions import Fraction

from planned import FULL, TOKENS, VOCABULARY, grid

HALF, SINGLE, DOUBLE = 2, 4, 8  # bytes of an element: activations, gradients, statistics
STATISTICS = 3


def reduced(members):
    """Sent bytes of an all-reduce, for each byte."""
    return Fraction(2 * (members - 1), members)


def formulas(row, blocks):
    """Bytes by axis of a rank with these pairs [first, end) of blocks. Block 0 is the embedding,
    block `layers` + 1 the head."""
    _, _, h, layers, t, p, gpus, batch, b, _, _ = row
    d = gpus // t // p
    micro_batches = batch // b // d
    has = {block for first, end in blocks for block in range(first, end)}
    own = len(has & set(range(1, layers + 1)))
    first, last = 0 in has, layers + 1 in has
    boundaries = sum((begin > 0) + (end < layers + 2) for begin, end in blocks)
    unit = HALF * b * TOKENS * h * (t - 1) // t
    sums = (12 - 2 + 1) * own + boundaries + 2 * first + 2 * last
    loss = STATISTICS * DOUBLE * b * TOKENS * (t - 1) * last
    vectors = 6 * h + 7 * h // t
    elements = own * (12 * h * h // t + vectors) + first * TOKENS * h + last * 2 * h
    table = VOCABULARY * h // t
    sent = SINGLE * reduced(d)
    tied = 0
    if p == 1:
        elements += table
    elif first or last:
        tied = SINGLE * table * reduced(2 * d)
    return {"pipeline": micro_batches * boundaries * HALF * b * TOKENS * h // t,
            "tensor": micro_batches * (sums * unit + loss),
            "data": sent * elements + tied}


def counted(plan, index, d):
    """Bytes by axis, and those of the data axis that only replicas of a stage exchange."""
    traffic, buckets = plan["plans"][index]["traffic"], plan["plans"][index]["buckets"]
    zeros = {"data": 0, "tied": 0}
    for bucket in buckets:
        zeros[bucket["group"]] += SINGLE * bucket["padding"]
    bytes_ = {axis: traffic[axis]["bytes"] for axis in ("pipeline", "tensor", "data")}
    alike = sum(flow["bytes"] for flow in traffic["data"]["flows"] if flow["group"] == "data")
    bytes_["data"] -= reduced(d) * zeros["data"] + reduced(2 * d) * zeros["tied"]
    return bytes_, alike - reduced(d) * zeros["data"]


def of_stage(plan, stage, d):
    rank = next(r for r in plan["ranks"] if r["stage"] == stage)
    return counted(plan, rank["plan"], d)


def compare_small(planner, row, plan):
    """Scales up two small grids, with one and with two layers of each virtual stage: bytes grow
    linearly with layers and micro-batches, and with (d - 1)/d. A third one has no recomputation and
    so sends 3 b s h (t - 1)/t elements less of each layer."""
    name, heads, h, layers, t, p, gpus, batch, b, chunks, _ = row
    stages = min(p, 3)
    stage = stages // 2 if stages > 2 else 0  # without a boundary of its own to the loss
    small = []
    for each, more in ((1, FULL), (2, FULL), (1, ["memory.recompute=none"])):
        words = grid(t, stages, chunks, 2 * stages * b, b) + ["memory.device_limit=1TiB"] + more
        virtual = stages * chunks
        if virtual > 1:
            words.append(f"parallel.partition=[{','.join([str(each)] * virtual)}]")
        little = planner.plan(2 * t * stages, heads, h, each * virtual, words)
        small.append(of_stage(little, stage, 2))
    d = gpus // t // p
    steps = Fraction(batch // b // d, stages)
    each = layers // p // chunks
    bytes_, alike = of_stage(plan, stage, d)
    wrong = []

    def expect(axis, found, one, two, factor):
        wanted = (one + (each - 1) * (two - one)) * factor
        if found != wanted:
            wrong.append(f"{name} B: {axis}: {float(found)} bytes, small grids "
                         f"say {float(wanted)}")

    unit = HALF * b * TOKENS * h * (t - 1) // t
    less = small[0][0]["tensor"] - small[2][0]["tensor"]
    if less != 3 * chunks * stages * unit:
        wrong.append(f"{name} B: tensor: {less} bytes less without recomputation")
    for axis in ("pipeline", "tensor"):
        expect(axis, bytes_[axis], small[0][0][axis], small[1][0][axis], steps)
    expect("data", alike, small[0][1], small[1][1], reduced(d))
    return wrong


def compare(planner, row, plan):
    """What differs in a plan of Table 1: the first stage that does, and small grids."""
    d = row[6] // row[4] // row[5]
    for rank in plan["ranks"]:
        if rank["data"] or rank["tensor"]:
            continue
        found, wanted = counted(plan, rank["plan"], d)[0], formulas(row, rank["blocks"])
        for axis, sent in wanted.items():
            if found[axis] != sent:
                return [f"{row[0]} B: stage {rank['stage']}: {axis}: {float(found[axis])} bytes, "
                        f"the formula says {float(sent)}"]
    return compare_small(planner, row, plan)
