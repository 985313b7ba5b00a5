# SPDX-License-Identifier: Apache-2.0
"""What Echelon's speed is measured by, in one command: a table for each target, both sides timed in
one run, and at the end which targets are met.

    cmake --build --preset release --target echelon bench_products bench_hogwild
    python bench/speed.py                       # all parts, about 50 minutes
    python bench/speed.py --only step --shape gpt2-124m
    python bench/speed.py --only step --drawn 7 --isa avx2
    python bench/speed.py --only zero --only zero-link --rounds 1 --warmup 1 --steps 2   # 5 minutes
    python bench/speed.py --quick               # tiny shapes: to see that everything runs

Times are medians with quartiles. Needs torch and numpy, two cores, and an otherwise idle machine;
the parts `link`, `machines`, `zero-link` and `compression-link` need root, and are left out,
visibly, without it.

--drawn SEED adds models whose shapes nothing was tuned for. --isa holds both sides down to an
instruction set, so a processor with AVX-512 also measures AVX2. """
import json
import os
import pathlib
import platform
import sys
import tempfile

import adapters
import common
import compression
import convnets
import drawn
import experts
import encode
import growth
import hogwild
import link
import machines
import memory
import offload
import precision
import ranks
import recompute
import report
import bound
import torch_step
import train_step
import workers
import zero
from common import torch

PARTS = {
    "step": (train_step.run, "a training step against PyTorch"),
    "convnets": (convnets.run, "a training step of VGG-16 and ResNet-18 against PyTorch"),
    "precision": (
        precision.run,
        "a training step in bf16 against fp32's, and against PyTorch's autocast",
    ),
    "recompute": (recompute.run, "a training step with recomputation against one without"),
    "encode": (encode.run, "a training step with codes of kept values against one without"),
    "adapters": (adapters.run, "a training step of adapters (LoRA) against one of the whole model"),
    "bound": (bound.run, "a training step against the rates of oneDNN and of memory"),
    "memory": (memory.run, "activations and logits against PyTorch"),
    "ranks": (
        ranks.run,
        "two data-parallel ranks against one, and against DistributedDataParallel",
    ),
    "link": (link.run, "two ranks over a link of 1 Gbit"),
    "zero": (zero.run, "ZeRO's stages on two ranks against stage 0, and against FSDP2"),
    "machines": (machines.run, "reductions of two machines, joined by a link of 1 Gbit"),
    "zero-link": (zero.run_link, "ZeRO's stages over a link of 1 Gbit"),
    "compression-link": (
        compression.run,
        "compressed gradients over a link of 1 Gbit, and against powerSGD_hook",
    ),
    "offload": (offload.run, "updates on the host against memory's rate"),
    "experts": (experts.run, "layers of experts against dense ones, and against PyTorch"),
    "workers": (workers.run, "servers that wait for a slow worker, and that do not"),
    "hogwild": (hogwild.run, "two lock-free ranks against one, and against threads with a mutex"),
    "growth": (growth.run, "micro-batches, layers, tokens"),
}


class Bench:
    """What the parts share. They leave verdicts, and steps that other parts need too."""

    def __init__(self, options, folder):
        self.folder, self.quick = folder, options.quick
        self.echelon = pathlib.Path(options.echelon).resolve()
        self.steps, self.warmup = (2, 1) if options.quick else (options.steps, options.warmup)
        self.rounds = 1 if options.quick else options.rounds
        self.shapes, self.variants = options.shape, options.variant
        self.drawn = {} if options.drawn is None else drawn.shapes(options.drawn)
        if self.drawn:
            train_step.SHAPES |= self.drawn
            self.shapes = [*(options.shape or ()), *self.drawn]
        self.verdicts, self.steps_of, self.machine, self.isa = [], {}, None, ""

    def shapes_of(self, wanted):
        """Those that were asked for; otherwise those with a target, of which a quick run takes one
        of each kind."""
        return self.shapes or (list(wanted)[::2] if self.quick else list(wanted))

    def measure_machine(self):
        """{"flops_per_second", "stream_bytes_per_second", ...} of `echelon bench`; once."""
        if not self.machine:
            threads = train_step.THREADS
            printed, _ = common.run_together([(
                ["taskset", "-c", f"0-{threads - 1}", self.echelon, "bench", "--json", "--threads",
                 str(threads), "--seconds", "0.2" if self.quick else "5", "gelu_forward"], {})])[0]
            self.machine = json.loads(printed)["machine"]
        return self.machine

    def verdict(self, what, value, wanted, least=True):
        self.verdicts.append(report.Verdict(what, value, wanted, least))

    def skip(self, what, why):
        print(f"skipped: {what}: {why}", flush=True)

    def tool(self, name):
        """A program of the bench folder, as built beside Echelon."""
        path = self.echelon.parent / "bench" / name
        if not path.exists():
            raise SystemExit(
                f"{path} is missing: cmake --build {self.echelon.parent} --target {name}"
            )
        return path


# What holds each program down to an instruction set of Echelon's (src/kernel/isa.h).
ISAS = {
    "portable": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
             "MKL_ENABLE_INSTRUCTIONS": "AVX2", "OPENBLAS_CORETYPE": "Haswell"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
               "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "avx512bf16": {},
}


def processor():
    with open("/proc/cpuinfo") as file:
        models = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return models[0] if models else platform.machine()


def describe(bench):
    """The machine and the programs."""
    print(f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; "
          f"load before: {os.getloadavg()[0]:.2f}")
    machine = bench.measure_machine()
    print(
        f"multiply-adds {1e-9 * machine['flops_per_second']:.0f} GFLOP/s (fp32, in registers), "
        f"memory {1e-9 * machine['stream_bytes_per_second']:.1f} GB/s (STREAM), "
        f"on {train_step.THREADS} threads"
    )
    version, _ = common.run_together([([bench.echelon, "--version"], {})], timed=False)[0]
    print(version.strip())
    bench.isa = next(line for line in version.splitlines() if line.startswith("kernels"))
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}: "
          f"{'; '.join(libraries())}", flush=True)
    if bench.quick:
        print("A quick run: its figures say nothing.")
    return dict(processor=processor(), cores=os.cpu_count(), system=platform.release(),
                load=os.getloadavg()[0], measured=machine, echelon=version.strip().splitlines(),
                torch=torch.__version__, torch_capability=torch.backends.cpu.get_cpu_capability(),
                torch_libraries=libraries())


def libraries():
    """Lines of PyTorch's configuration that name the libraries of its products."""
    return [line.strip(" -") for line in torch.__config__.show().splitlines()
            if "MKL" in line and "Version" in line or "MKL-DNN" in line]


def parse():
    parser = common.parser(__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", metavar="PART",
                        help="; ".join(f"{name}: {about}" for name, (_, about) in PARTS.items()))
    parser.add_argument("--shape", choices=train_step.SHAPES, action="append",
                        help="of the parts step, precision, bound and memory: only this model")
    parser.add_argument("--variant", choices=torch_step.VARIANTS, action="append",
                        help="of the parts step and precision: only these ways to run PyTorch")
    parser.add_argument("--drawn", type=int, metavar="SEED",
                        help="of the same parts: five models drawn from the seed")
    parser.add_argument("--isa", choices=ISAS,
                        help="instruction set that both sides are held down to")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, to see that all runs")
    parser.add_argument("--steps", type=int, default=5, help="timed in a turn (5)")
    parser.add_argument("--warmup", type=int, default=3, help="steps before these (3)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each side (2)")
    parser.add_argument("--json", type=pathlib.Path,
                        help="also write to this file: machine, versions, verdicts")
    return common.parse(parser)


def hold_down(isa):
    """Starts this program again with variables of the environment, which its libraries have read
    before it could set them."""
    wanted = {"ECHELON_ISA": isa} | ISAS[isa]
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)


def main():
    options = parse()
    if options.isa:
        hold_down(options.isa)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, pathlib.Path(scratch))
        machine = describe(bench)
        for name in options.only or PARTS:
            PARTS[name][0](bench)
    report.verdicts(bench.verdicts)
    if options.json:
        verdicts = [vars(verdict) | dict(met=verdict.met()) for verdict in bench.verdicts]
        options.json.write_text(
            json.dumps(dict(machine=machine, isa=options.isa, verdicts=verdicts), indent=1) + "\n")


if __name__ == "__main__":
    main()
