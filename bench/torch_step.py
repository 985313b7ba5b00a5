# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of speed.py: training steps (forward, backward, clipping, AdamW; fp32, or bf16 by
autocast) of one rank, or of one of several over gloo: under DistributedDataParallel, or FSDP2.

It is tuned by pinned threads, large malloc thresholds (common.MALLOC), fused attention, fused AdamW
and clipping by foreach. A variant says whether and how it is compiled, whether gradients are kept
between steps, how many tokens have logits at a time, and which memory is in huge pages. """
import contextlib
import json
import os
import time

import common
from common import nn, torch

# compiled: False, or the mode of torch.compile. rows: tokens whose logits are there at a time; 0:
# all.
PLAIN = dict(compiled=False, keep_gradients=False, rows=0)
VARIANTS = {
    "eager": PLAIN,
    "eager, chunked loss": PLAIN | dict(rows=256),
    "compile": PLAIN | dict(compiled="default"),
    "compile, chunked loss": PLAIN | dict(compiled="default", rows=256),
    "compile, max-autotune": PLAIN | dict(compiled="max-autotune-no-cudagraphs"),
}
# Allocations from this size on are huge pages in PyTorch's own allocator.
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}


def variants(quick):
    """Names of those that this PyTorch can do; `quick`: two of them."""
    names = ("eager, chunked loss", "compile") if quick else VARIANTS
    return [name for name in names
            if not VARIANTS[name]["rows"] or common.joins_head_and_loss()]


def shard(model, reshard):
    """FSDP2's: a group of parameters a layer, one of all the rest."""
    from torch.distributed.fsdp import fully_shard
    for layer in model.layers:
        fully_shard(list(layer), reshard_after_forward=reshard)
    fully_shard(model, reshard_after_forward=reshard)


def compress(model, rank):
    """Gradients as PowerSGD sends them, with error feedback and warm start, from the third step on,
    which is the earliest."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
    state = powersgd.PowerSGDState(process_group=None, matrix_approximation_rank=rank,
                                   start_powerSGD_iter=2)
    model.register_comm_hook(state, powersgd.powerSGD_hook)


class Trainer:
    """A rank that trains on `samples` samples of random ids, in micro-batches."""

    def __init__(self, job):
        self.job, shape, variant = job, job["shape"], job["variant"]
        torch.manual_seed(1)
        self.model = common.Model(shape, variant["rows"])
        self.run = self.model
        self.sharded = job.get("reshard") is not None
        self.parameters = common.count_parameters(self.model)
        if self.sharded:
            shard(self.model, job["reshard"])
        elif job["ranks"] > 1:
            # powerSGD_hook sends a bucket's second factor when its first has come: with several
            # buckets two ranks come to that in different orders, and gloo, which has no streams,
            # mixes them up.
            whole = {"bucket_cap_mb": 1 << 20} if job.get("powersgd") else {}
            self.run = nn.parallel.DistributedDataParallel(
                self.model, gradient_as_bucket_view=True, **whole
            )
            if job.get("powersgd"):
                compress(self.run, job["powersgd"])
        if variant["compiled"]:
            self.run = torch.compile(self.run, mode=variant["compiled"])
        self.optimizer = common.adamw(self.model)
        self.batches = [
            torch.randint(common.vocabulary(shape), (job["samples"], shape["length"] + 1))
            for _ in range(job["micro_batches"])
        ]

    def accumulate(self, number):
        """One micro-batch; ranks add up their gradients in the last one of a step, or in each,
        sharded."""
        last = number + 1 == len(self.batches)
        plain = self.job["ranks"] == 1 or last or self.sharded
        ids = self.batches[number]
        with contextlib.nullcontext() if plain else self.run.no_sync():
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.job["compute"] == "bf16"):
                loss = self.run(ids[:, :-1], ids[:, 1:]) / len(self.batches)
            loss.backward()
        return loss.detach()

    def step(self):
        self.optimizer.zero_grad(set_to_none=not self.job["variant"]["keep_gradients"])
        loss = sum(self.accumulate(number) for number in range(len(self.batches)))
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        return loss.item()


def begin(job):
    """Returns a trainer in a rank's own process."""
    torch.set_num_threads(job["threads"])
    if job["ranks"] > 1:
        common.meet(job, job["rank"], job["ranks"])
    return Trainer(job)


def torch_rank(job):
    """Prints {"seconds" of every step, "losses", "parameters"}."""
    trainer, seconds, losses = begin(job), [], []
    for _ in range(job["steps"]):
        start = time.perf_counter()
        losses.append(trainer.step())
        seconds.append(time.perf_counter() - start)
    if job["rank"] == 0:
        print(json.dumps(dict(seconds=seconds, losses=losses,
                              parameters=trainer.parameters)), flush=True)
    if job["ranks"] > 1:
        torch.distributed.barrier()
        os._exit(0)  # its own end sometimes aborts


def run(shape, variant, ranks, threads, samples, micro_batches, steps, folder, compute="fp32",
        reshard=None, powersgd=0, **where):
    """Runs PyTorch for the program that compares. samples: those of a rank's micro-batch. compute:
    fp32 or bf16. reshard: FSDP2's reshard_after_forward; None: no FSDP2. powersgd: the rank of the
    compressed gradients; 0: no compression. where: common.run_torch's place."""
    job = dict(
        shape=shape,
        variant=VARIANTS[variant],
        ranks=ranks,
        threads=threads,
        samples=samples,
        micro_batches=micro_batches,
        steps=steps,
        compute=compute,
        reshard=reshard,
        powersgd=powersgd,
        variables=common.MALLOC | HUGE_PAGES,
    )
    return common.run_torch(__file__, ranks, threads, job, folder, **where)


if __name__ == "__main__":
    torch_rank(json.loads(common.parser(__doc__).parse_args().rank))
