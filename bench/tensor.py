# SPDX-License-Identifier: Apache-2.0
"""Times one training step (forward, backward, clipping, AdamW; fp32) of a GPT-2 of 4 layers, 768
wide, on two cores. One rank of two threads is compared with two tensor-parallel ranks of one
thread, over MPI and as threads of one process. The two ranks run without sequence parallelism, with
it, and with gathered inputs kept.

Then PyTorch's DTensor over gloo: the same model, cut by ColwiseParallel and RowwiseParallel, with
and without SequenceParallel; and PyTorch on one rank of two threads. All begin with the same
weights, which Echelon draws, and train on the same samples: their losses must agree.

All take turns. Wanted of tensor parallelism: throughput at least 0.85 of one rank of two threads,
no less with sequence parallelism than without, and at least 1.3 of DTensor's.

Needs torch, numpy and safetensors, and an otherwise idle machine.
"""
import json
import os
import pathlib
import statistics
import tempfile
import time

import common
from common import functional, nn, numpy, torch

FULL = dict(architecture="gpt2", hidden_size=768, num_hidden_layers=4, num_attention_heads=12,
            num_key_value_heads=12, intermediate_size=3072, tie_word_embeddings=False, length=1024)
# To see that everything runs; its times say nothing.
TINY = FULL | dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=4,
                   intermediate_size=256, length=64)
TENSOR = 2

# ---- PyTorch ----


class Layer(nn.Module):
    """Queries, keys and values are one product, as in Echelon; its columns are ordered by heads, so
    that a share of the columns is a share of the heads."""

    def __init__(self, C, F, head_dim):
        super().__init__()
        self.head_dim = head_dim
        self.ln_1, self.qkv, self.out = nn.LayerNorm(C), nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.ln_2, self.up, self.down = nn.LayerNorm(C), nn.Linear(C, F), nn.Linear(F, C)

    def attention(self, x):
        qkv = self.qkv(x)
        B, T, _ = qkv.shape
        q, k, v = qkv.view(B, T, -1, 3, self.head_dim).permute(3, 0, 2, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(B, T, -1))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        C, F = shape["hidden_size"], shape["intermediate_size"]
        self.tokens = nn.Embedding(common.VOCABULARY, C)
        self.positions = nn.Embedding(shape["length"], C)
        self.layers = nn.ModuleList(Layer(C, F, C // shape["num_attention_heads"])
                                    for _ in range(shape["num_hidden_layers"]))
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, common.VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def by_heads(x, heads):
    """From queries | keys | values, each by heads, to heads with queries, keys and values each."""
    return x.reshape(3, heads, -1, *x.shape[1:]).transpose(0, 1).reshape(x.shape)


def load_weights(model, path, heads):
    """Of Echelon's checkpoint, whose matrices of layers are (in, out)."""
    from safetensors.torch import load_file
    stored = load_file(path)
    names = {"ln_1": "ln_1", "qkv": "attn.c_attn", "out": "attn.c_proj", "ln_2": "ln_2",
             "up": "mlp.c_fc", "down": "mlp.c_proj", "norm": "transformer.ln_f",
             "tokens": "transformer.wte", "positions": "transformer.wpe", "head": "lm_head"}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            *layer, module, kind = name.split(".")
            prefix = f"transformer.h.{layer[1]}." if layer else ""
            x = stored.pop(f"{prefix}{names[module]}.{kind}")
            x = x.T if module in ("qkv", "out", "up", "down") and kind == "weight" else x
            parameter.copy_(by_heads(x, heads) if module == "qkv" else x)
    assert not stored, f"weights that the model has not: {stored.keys()}"


def cut(model, sequence):
    """Over two ranks, by PyTorch's own styles. With `sequence`, tokens are cut between them."""
    from torch.distributed import device_mesh, tensor
    from torch.distributed.tensor import parallel
    mesh = device_mesh.init_device_mesh("cpu", (TENSOR,))
    whole = tensor.Replicate()
    between = tensor.Shard(1) if sequence else whole
    columns = parallel.ColwiseParallel(input_layouts=between)
    rows = parallel.RowwiseParallel(output_layouts=between)
    layer = dict(qkv=columns, out=rows, up=columns, down=rows)
    outer = dict(tokens=parallel.RowwiseParallel(input_layouts=whole, output_layouts=between),
                 positions=parallel.RowwiseParallel(
                     input_layouts=whole, output_layouts=tensor.Shard(0) if sequence else whole),
                 head=parallel.ColwiseParallel(input_layouts=between,
                                               output_layouts=tensor.Shard(-1),
                                               use_local_output=False))
    if sequence:
        layer |= dict(ln_1=parallel.SequenceParallel(), ln_2=parallel.SequenceParallel())
        outer |= dict(norm=parallel.SequenceParallel())
    for module in model.layers:
        parallel.parallelize_module(module, mesh, layer)
    parallel.parallelize_module(model, mesh, outer)


def groups_of(model):
    """Parameters that are cut, and those that every rank has: one optimizer call takes one kind."""
    from torch.distributed.tensor import DTensor
    kinds = ([], [])
    for parameter in model.parameters():
        kinds[isinstance(parameter, DTensor)].append(parameter)
    return [kind for kind in kinds if kind]


def clip(groups):
    from torch.distributed.tensor import DTensor
    norms = [nn.utils.get_total_norm([p.grad for p in group]) for group in groups]
    norms = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    norm = torch.stack(norms).norm()
    for group in groups:
        nn.utils.clip_grads_with_norm_(group, 1.0, norm)


def torch_rank(job):
    """A rank's own process: trains; rank 0 prints [seconds of every step, losses, parameters]."""
    import contextlib
    shape, batch = job["shape"], job["batch"]
    torch.set_num_threads(job["threads"])
    model = Model(shape)
    load_weights(model, job["weights"], shape["num_attention_heads"])
    count, context = common.count_parameters(model), contextlib.nullcontext
    if job["ranks"] > 1:
        from torch.distributed.tensor import parallel
        common.meet(job, job["rank"], job["ranks"])
        cut(model, job["sequence"])
        context = parallel.loss_parallel
    groups = groups_of(model)
    optimizer = torch.optim.AdamW([dict(params=group) for group in groups], lr=1e-3,
                                  betas=(0.9, 0.95), weight_decay=0, fused=True)
    run = torch.compile(model) if job["compiled"] else model
    ids = torch.from_numpy(numpy.fromfile(job["tokens"], dtype=numpy.uint16).astype(numpy.int64))
    inputs, targets = ids[:-1].view(batch, -1), ids[1:].view(batch, -1)
    seconds, losses = [], []
    for _ in range(job["steps"]):
        start = time.perf_counter()
        optimizer.zero_grad()
        with context():
            loss = common.mean_loss(run(inputs), targets)
            loss.backward()
        clip(groups)
        optimizer.step()
        loss = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    if job["rank"] == 0:
        print(json.dumps([seconds, losses, count]))
    if job["ranks"] > 1:
        torch.distributed.destroy_process_group()


# ---- the comparison ----

# Keys of a grid.
CUTS = {"one rank": [], "tensor": ["parallel.sequence=false"],
        "tensor, sequence": ["parallel.sequence=true"],
        "tensor, sequence, keep": ["parallel.sequence=keep"]}


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.shape = TINY if options.tiny else FULL
        self.steps = options.warmup + options.steps
        self.seconds, self.losses, self.counts = {}, {}, set()

    def keys(self, steps):
        batch = str(self.options.batch)
        return common.shape_keys(self.shape, self.folder) + [
            f"training.global_batch_size={batch}", f"training.micro_batch_size={batch}",
            f"training.steps={steps}", "optimizer.schedule=constant"]

    def draw_weights(self):
        """Those of an Echelon run before its first step."""
        run = self.folder / "initial"
        common.train_echelon(self.options.echelon, 1, 1,
                             [*self.keys(0), "parallel.comm=local"], run, self.folder)
        return str(run / "checkpoints/step-00000000/model/model.safetensors")

    def run_echelon(self, cut, comm):
        ranks, threads = (1, 2) if cut == "one rank" else (TENSOR, 1)
        run = self.folder / f"run-{time.monotonic_ns()}"
        keys = [*self.keys(self.steps), f"parallel.comm={comm}", f"parallel.tensor={ranks}",
                "checkpoint.every=1000000", *CUTS[cut]]
        seconds, count = common.train_echelon(self.options.echelon, ranks, threads, keys, run,
                                              self.folder)
        return seconds, [line["loss"] for line in common.read_metrics(run)], count

    def run_torch(self, cut):
        ranks, threads = (1, 2) if cut == "one rank" else (TENSOR, 1)
        job = dict(shape=self.shape, batch=self.options.batch, ranks=ranks, threads=threads,
                   sequence="sequence" in cut, steps=self.steps, compiled=self.options.compile,
                   tokens=str(common.token_file(self.shape, self.folder)), weights=self.weights)
        return common.run_torch(__file__, ranks, threads, job, self.folder)

    def systems(self):
        """Name: what runs it."""
        made = {"Echelon, one rank": lambda: self.run_echelon("one rank", "local")}
        for comm in self.options.comm:
            for cut in list(CUTS)[1:]:
                made[f"Echelon, {comm}, {cut}"] = \
                    lambda cut=cut, comm=comm: self.run_echelon(cut, comm)
        if not self.options.no_torch:
            for cut in ("one rank", "tensor", "tensor, sequence"):
                made[f"PyTorch, {cut}"] = lambda cut=cut: self.run_torch(cut)
        return made

    def run(self):
        # As many samples as a step takes: every step sees all of them.
        common.write_tokens(self.shape, self.folder,
                            self.options.batch * self.shape["length"] + 1)
        self.weights = self.draw_weights()
        for number in range(self.options.rounds):
            for name, run in self.systems().items():
                seconds, losses, count = run()
                self.seconds.setdefault(name, []).extend(seconds[self.options.warmup:])
                self.losses.setdefault(name, losses)
                self.counts.add(count)
            print(f"round {number + 1} done; load {os.getloadavg()[0]:.2f}", flush=True)
        assert len(self.counts) == 1, f"different models: {self.counts} parameters"

    def check_losses(self):
        """Other orders of summation in fp32: losses are close in the first steps, not later."""
        first = self.losses["Echelon, one rank"][:3]
        worst = max(abs(a - b) / b for losses in self.losses.values()
                    for a, b in zip(losses, first))
        print(f"losses of the first steps: {', '.join(f'{x:.6f}' for x in first)}; "
              f"largest relative difference {worst:.1e}")
        assert worst < 1e-4, f"the models differ: {self.losses}"

    def show(self):
        tokens = self.options.batch * self.shape["length"]
        middle = {name: statistics.median(seconds) for name, seconds in self.seconds.items()}
        alone = middle["Echelon, one rank"]
        print("system  ms/step [quartiles]  tokens/s  throughput over Echelon's one rank")
        for name, seconds in self.seconds.items():
            print(f"{name:38} {common.spread(seconds)} {tokens / middle[name]:9,.0f} "
                  f"{alone / middle[name]:7.3f}")
        for cut in ("tensor", "tensor, sequence"):
            if f"PyTorch, {cut}" in middle:
                ours = middle[f"Echelon, {self.options.comm[0]}, {cut}"]
                print(f"{cut}: DTensor's time over Echelon's "
                      f"{middle[f'PyTorch, {cut}'] / ours:.2f}")


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--batch", type=int, default=2, help="samples of the one micro-batch (2)")
    parser.add_argument("--comm", choices=("mpi", "local"), nargs="+", default=["mpi", "local"])
    parser.add_argument("--steps", type=int, default=5, help="timed per round (5)")
    parser.add_argument("--warmup", type=int, default=2, help="steps before these (2)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (3)")
    parser.add_argument("--compile", action="store_true", help="PyTorch: torch.compile")
    parser.add_argument("--no-torch", action="store_true", help="Echelon alone")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to see that all runs")
    options = common.parse(parser)
    if options.rank:
        torch_rank(json.loads(options.rank))
        return
    print(f"PyTorch {torch.__version__}; load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, pathlib.Path(scratch))
        bench.run()
        bench.check_losses()
        bench.show()


main()
