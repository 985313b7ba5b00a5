#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# What `echelon plan --emit-for` writes for another system is accepted by that system's own parser,
# and has the degrees, batch, schedule, ZeRO and recomputation of the plan. A system whose parser is
# not installed (megatron-core, torchtitan, deepspeed) is skipped by name; without any, the test is.
# No GPU is needed: the parsers see the data sheet of one.
#     check_emitted.py ECHELON CLUSTERS
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

RUN = """\
model: {architecture: MODEL, num_hidden_layers: 16, hidden_size: 512, num_attention_heads: 8,
        vocab_size: 512, max_position_embeddings: 4096}
data: {sequence_length: 4096}
training: {steps: 10, global_batch_size: 64, micro_batch_size: 1}
optimizer: {learning_rate: 1e-3}
precision: {compute: bf16}
"""
PIPELINE = "parallel.pipeline=4 parallel.schedule="
# ranks, architecture, words of the command line, and keys that some systems do not have; None: they
# lack a degree
CASES = [
    (8, "gpt2", "", {}),
    (8, "gpt2", "parallel.zero=1 memory.recompute=full",
     {"torchtitan": ["parallel.zero"], "deepspeed": ["memory.recompute"]}),
    (16, "llama", "parallel.tensor=4 parallel.sequence=true parallel.zero=2 "
     "training.micro_batch_size=2", {"deepspeed": ["parallel.sequence"]}),
    (16, "llama", "parallel.tensor=2 parallel.zero=3 memory.recompute=selective",
     {"deepspeed": ["memory.recompute"]}),
    (16, "llama", "parallel.context=2 parallel.zero=3", {"deepspeed": None}),
    (16, "llama", "parallel.context=2 parallel.context_method=ulysses",
     {"torchtitan": ["parallel.context_method"]}),
    (32, "llama", PIPELINE + "1f1b parallel.tensor=2 parallel.zero=1 memory.recompute=full",
     {"torchtitan": ["parallel.zero"]}),
    (16, "llama", PIPELINE + "interleaved parallel.virtual_stages=2",
     {"deepspeed": ["parallel.schedule"]}),
    (16, "gpt2", PIPELINE + "interleaved parallel.virtual_stages=4",
     {"deepspeed": ["parallel.schedule"]}),
    (16, "gpt2", PIPELINE + "interleaved parallel.virtual_stages=2 model.vocab_size=50304",
     {"torchtitan": ["parallel.partition"], "deepspeed": ["parallel.schedule"]}),
    (16, "llama", PIPELINE + "zero-bubble-v",
     {"megatron": ["parallel.schedule"], "deepspeed": ["parallel.schedule"]}),
    (16, "llama", PIPELINE + "zero-bubble",
     {"megatron": ["parallel.schedule"], "torchtitan": ["parallel.schedule"],
      "deepspeed": ["parallel.schedule"]}),
    (16, "mixtral", "model.num_local_experts=8 parallel.expert=4 parallel.zero=3", {}),
    (8, "llama", "parallel.zero=1 memory.offload_optimizer=host",
     {"torchtitan": ["parallel.zero", "memory.offload_optimizer"]}),
    (8, "gpt2", "parallel.compression=powersgd memory.offload_activations=host",
     {system: ["parallel.compression", "memory.offload_activations"]
      for system in ("megatron", "torchtitan", "deepspeed")}),
]


def words_of(file):
    lines = pathlib.Path(file).read_text().splitlines()
    return [word for line in lines if not line.startswith("#") for word in line.split()]


# ---- the systems' parsers: from a file to our names ----

def load_megatron():
    import typing
    if not hasattr(typing, "override"):  # before Python 3.12
        typing.override = lambda function: function
    from megatron.training import arguments
    arguments.get_device_arch_version = lambda: 9
    return arguments


def parse_megatron(arguments, file, ranks):
    words = words_of(file)
    connections = "8" if "--use-megatron-fsdp" in words else "1"
    os.environ.update(WORLD_SIZE=str(ranks), RANK="0", CUDA_DEVICE_MAX_CONNECTIONS=connections)
    sys.argv = ["pretrain_gpt.py"] + words
    args = arguments.parse_args()
    arguments.validate_args(args)
    zero = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    stage = zero[args.data_parallel_sharding_strategy] if args.use_megatron_fsdp else \
        int(args.use_distributed_optimizer)
    return {"data": args.data_parallel_size, "pipeline": args.pipeline_model_parallel_size,
            "tensor": args.tensor_model_parallel_size, "context": args.context_parallel_size,
            "expert": args.expert_model_parallel_size,
            "chunks": args.virtual_pipeline_model_parallel_size or 1,
            "sequence": args.sequence_parallel, "zero": stage, "micro": args.micro_batch_size,
            "batch": args.global_batch_size, "recompute": args.recompute_granularity or "none",
            "offload": args.optimizer_cpu_offload, "layers": layers_of(args)}


def layers_of(args):
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    layout = args.pipeline_model_parallel_layout
    if layout is None:
        return [args.num_layers]
    stages = PipelineParallelLayerLayout.parse_str_to_list(layout)
    assert stages[0][0].name == "embedding" and stages[-1][-1].name == "loss"
    return [sum(layer.name == "decoder" for layer in stage) for stage in stages]


def load_torchtitan():
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed.pipeline_parallel import _generate_llm_fqn_per_model_part
    return ConfigManager, _generate_llm_fqn_per_model_part


def parse_torchtitan(parser, file, ranks):
    manager, cut = parser
    config = manager().parse_args(["--module", "llama3", "--config", "llama3_8b"] + words_of(file))
    at, training = config.parallelism, config.training
    sharded = at.data_parallel_shard_degree
    stages = at.pipeline_parallel_degree
    single = at.pipeline_parallel_schedule in ("1F1B", "GPipe")
    count = stages * (1 if single else 2)
    a = at.pipeline_parallel_first_stage_less_layers
    b = at.pipeline_parallel_last_stage_less_layers
    if at.pipeline_parallel_layers_per_stage:
        count = -(-(16 + a + b) // at.pipeline_parallel_layers_per_stage)
    layers = [16]
    if stages > 1:
        parts = cut(count, 16, a, b)
        layers = [sum(name.startswith("layers.") for name in part) for part in parts]
    zero = 0 if sharded == 1 else {"always": 3, "never": 2}[at.fsdp_reshard_after_forward]
    recompute = re.search(r"(Full|Selective|None)", type(config.activation_checkpoint).__qualname__)
    micro = at.pipeline_parallel_microbatch_size if stages > 1 else training.local_batch_size
    return {"data": at.data_parallel_replicate_degree * sharded, "pipeline": stages,
            "tensor": at.tensor_parallel_degree, "context": at.context_parallel_degree,
            "expert": at.expert_parallel_degree, "chunks": count // stages,
            "sequence": at.enable_sequence_parallel and at.tensor_parallel_degree > 1, "zero": zero,
            "micro": micro, "batch": training.global_batch_size, "layers": layers,
            "recompute": recompute.group(1).lower() if recompute else "none",
            "offload": training.enable_cpu_offload}


def load_deepspeed():
    from deepspeed.runtime import config
    config.dist.get_rank = lambda *_: 0
    return config.DeepSpeedConfig


def parse_deepspeed(parser, file, ranks):
    raw = json.loads(pathlib.Path(file).read_text())
    tensor = raw.get("tensor_parallel", {}).get("autotp_size", 1)
    stages = raw.get("pipeline", {}).get("stages", 1)
    sequence = raw.get("sequence_parallel_size", 1)
    world = types.SimpleNamespace(
        get_data_parallel_world_size=lambda: ranks // tensor // stages // sequence)
    config = parser(raw, mpu=world)
    offload = config.zero_config.offload_optimizer
    pipeline = config.pipeline["stages"]
    return {"data": config.train_batch_size // config.train_micro_batch_size_per_gpu //
            config.gradient_accumulation_steps, "pipeline": 1 if pipeline == "auto" else pipeline,
            "tensor": config.tensor_parallel_config.autotp_size or 1, "context": sequence,
            "expert": config.expert_parallel_config.autoep_size,
            "zero": int(config.zero_optimization_stage),
            "micro": config.train_micro_batch_size_per_gpu, "batch": config.train_batch_size,
            "recompute": "full" if config.pipeline["activation_checkpoint_interval"] else "none",
            "offload": bool(offload and offload.device != "none")}


SYSTEMS = {"megatron": (load_megatron, parse_megatron),
           "torchtitan": (load_torchtitan, parse_torchtitan),
           "deepspeed": (load_deepspeed, parse_deepspeed)}


def parse_all(system, files):
    """In a process of its own: prints what the parser has read, or why there is no parser."""
    load, parse = SYSTEMS[system]
    said = os.dup(1)
    os.dup2(2, 1)  # parsers print
    try:
        parser = load()
    except ImportError as missing:
        os.write(said, json.dumps(str(missing)).encode())
        return
    read = [parse(parser, file, int(ranks)) for ranks, file in (f.split(":", 1) for f in files)]
    os.write(said, json.dumps(read).encode())


# ---- the test ----

def emit(echelon, cluster, case, system, file):
    ranks, model, words, _ = case
    pathlib.Path("run.yaml").write_text(RUN.replace("MODEL", model))
    made = subprocess.run(
        [echelon, "plan", "run.yaml", "--cluster", cluster, "--ranks", str(ranks), "--json",
         "--emit-for", system, "--emit", file] + words.split(),
        capture_output=True, text=True)
    if case[3].get(system, []) is None:
        assert made.returncode == 2 and "not with --emit-for" in made.stderr, made.stderr
        return None
    assert made.returncode == 0, f"{words}: {made.stderr}"
    return json.loads(made.stdout)


def expected(plan, words, missing):
    """Our layout, as far as the system has it."""
    keys = dict(word.split("=") for word in words.split())
    grid, batch = plan["grid"], plan["batch"]
    stages = [0] * (grid["stages"] * grid["chunks"])
    for rank in plan["ranks"]:
        if rank["data"] == rank["context"] == rank["tensor"] == 0:
            for chunk, (first, end) in enumerate(rank["blocks"]):
                at = rank["stage"] + chunk * grid["stages"]
                if plan["schedule"] == "zero-bubble-v" and chunk:
                    at = 2 * grid["stages"] - 1 - rank["stage"]
                stages[at] = end - first
    stages[0] -= 1
    stages[-1] -= 1
    chunks = grid["chunks"]
    if plan["schedule"] == "zero-bubble-v" and "parallel.schedule" in missing:
        stages = [stages[s] + stages[-1 - s] for s in range(grid["stages"])]
        chunks = 1
    ours = {"data": grid["replicas"][0], "pipeline": grid["stages"], "tensor": grid["tensor"],
            "context": grid["context"], "expert": grid["expert"], "chunks": chunks,
            "sequence": grid["sequence"] != "false", "zero": int(keys.get("parallel.zero", 0)),
            "micro": batch["micro_batch_size"], "batch": batch["global_batch_size"],
            "recompute": grid["recompute"], "layers": stages,
            "offload": keys.get("memory.offload_optimizer", "none") != "none"}
    for key in missing:
        ours.pop(key.split(".")[1], None)
    if "parallel.schedule" in missing and plan["schedule"] == "zero-bubble":
        ours.pop("chunks")
    if "memory.offload_optimizer" in missing:
        ours.pop("offload")
    if "parallel.partition" in missing:
        ours.pop("layers")
    return ours


def parse(script, system, files):
    made = subprocess.run([sys.executable, script, "--parse", system] + files,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert made.returncode == 0, made.stderr[-3000:]
    return json.loads(made.stdout)


def main():
    if sys.argv[1] == "--parse":
        return parse_all(sys.argv[2], sys.argv[3:])
    echelon = os.path.abspath(sys.argv[1])
    cluster = str(pathlib.Path(sys.argv[2], "h100.yaml").resolve())
    script = os.path.abspath(__file__)
    os.chdir(tempfile.mkdtemp())
    read_back = 0
    for system in SYSTEMS:
        made = parse(script, system, [])
        if isinstance(made, str):
            print(f"{system}: not proved here: {made}")
            continue
        plans, files, cases = [], [], []
        for i, case in enumerate(CASES):
            plan = emit(echelon, cluster, case, system, f"{system}-{i}")
            if plan is None:
                continue
            emitted, missing = plan["emitted"], case[3].get(system, [])
            named = [text.split(" = ")[0] for text in emitted["not_supported"]]
            assert sorted(named) == sorted(missing), (system, case, named)
            assert emitted["system"] == system and emitted["other_memory"]
            plans.append(expected(plan, case[2], missing))
            files.append(f"{case[0]}:{system}-{i}")
            cases.append(case)
        read = parse(script, system, files)
        read_back += 1
        for case, ours, theirs in zip(cases, plans, read):
            for key, value in theirs.items():
                if key in ours:
                    assert ours[key] == value, (system, case, key, ours[key], value)
        print(f"{system}: {len(read)} layouts read back")
    if not read_back:
        print("skipped: no parser of another system is installed")
        sys.exit(77)


main()
