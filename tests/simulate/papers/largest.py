#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans of the largest published models: parameter counts, memory that grows with classes of ranks,
not with ranks, and GPipe's bubble.

GPipe (Huang et al. 2019, section 2.3): with recomputation the bubble is almost negligible from m =
4 p micro-batches on, because a stage recomputes before its gradient arrives. Here the bubble is the
share of the step that does not grow with m. If F and R of a stage cost one unit and its backward
two, (p - 1)(F + B) is 3 (p - 1) of 4 m + 3 (p - 1) units. Even blocks stay within that; real blocks
have the costs of the cluster, and stay within 2 points of it.

    largest.py ECHELON CLUSTERS
"""
import json
import os
import subprocess
import sys
import tempfile

RUN = """
data: {train: synthetic, sequence_length: 1024}
training: {steps: 1, micro_batch_size: 1}
precision: {compute: bf16}
optimizer: {learning_rate: 1e-4}
log: {directory: none}
model: {vocab_size: 32128}
"""
# name, ranks, billions as published, how near, keys
MODELS = [
    ("Llama 3.1 405B", 16384, 405.853, 0.001,
     "model.architecture=llama model.vocab_size=128256 model.hidden_size=16384 "
     "model.num_hidden_layers=126 model.num_attention_heads=128 model.num_key_value_heads=8 "
     "model.intermediate_size=53248 model.max_position_embeddings=8192 data.sequence_length=8192 "
     "parallel.tensor=8 parallel.pipeline=16 parallel.sequence=true parallel.zero=1 "
     "training.global_batch_size=2048"),
    # 671 B without multi-token prediction; memory is not compared: they recompute less than layers
    ("DeepSeek-V3", 2048, 671.026, 0.001,
     "model.architecture=deepseek_v3 model.vocab_size=129280 model.hidden_size=7168 "
     "model.num_hidden_layers=61 model.num_attention_heads=128 model.intermediate_size=18432 "
     "model.moe_intermediate_size=2048 model.num_local_experts=256 model.num_experts_per_tok=8 "
     "model.n_group=8 model.topk_group=4 model.routed_scaling_factor=2.5 model.moe_first_dense=3 "
     "model.q_lora_rank=1536 model.kv_lora_rank=512 model.max_position_embeddings=4096 "
     "data.sequence_length=4096 parallel.pipeline=16 parallel.expert=64 parallel.zero=1 "
     "memory.recompute=full memory.device_limit=1TiB training.global_batch_size=15360"),
    ("Switch-C, 1.6 trillion", 2048, 1571, 5,
     "model.architecture=switch model.hidden_size=2080 model.num_hidden_layers=30 "
     "model.num_attention_heads=64 model.head_dim=64 model.intermediate_size=6144 "
     "model.num_local_experts=2048 model.moe_every=1 model.moe_capacity_factor=1.25 "
     "model.max_position_embeddings=1024 parallel.expert=2048 training.global_batch_size=8192 "
     "training.micro_batch_size=4 model.moe_group_samples=4"),
    ("GShard, 600 billion", 2048, 620, 5,
     "model.architecture=switch model.hidden_size=1024 model.num_hidden_layers=36 "
     "model.num_attention_heads=16 model.head_dim=128 model.intermediate_size=8192 "
     "model.num_local_experts=2048 model.moe_every=2 model.moe_capacity_factor=2 "
     "model.max_position_embeddings=1024 parallel.expert=2048 training.global_batch_size=8192 "
     "training.micro_batch_size=4 model.moe_group_samples=4"),
]
GPT = ("model.architecture=gpt2 model.hidden_size=2048 model.num_hidden_layers=16 "
       "model.num_attention_heads=16 model.max_position_embeddings=1024 parallel.tensor=8 "
       "parallel.pipeline=16")
MOST_BYTES_PER_RANK = 1024
STAGES = 8
GPIPE = ("model.architecture=gpt2 model.hidden_size=8192 model.num_hidden_layers=30 "
         "model.num_attention_heads=64 model.max_position_embeddings=1024 parallel.schedule=gpipe "
         f"parallel.pipeline={STAGES} parallel.partition=[3,4,4,4,4,4,4,3] memory.recompute=full "
         "memory.recompute_blocks=4 memory.device_limit=1TiB")
MORE_BUBBLE = {"even": 0, "real": 0.02}


def plan(echelon, cluster, run_file, ranks, keys):
    """What is printed, and the peak memory of the process. Without a cluster times are in units."""
    words = [echelon, "plan", run_file, "--ranks", str(ranks)]
    words += ["--cluster", cluster] if cluster else []
    with subprocess.Popen(words + keys.split(), stdout=subprocess.PIPE) as process:
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"FAILED: {' '.join(words)} {keys}")
    return text, usage.ru_maxrss * 1024


def bubbles(echelon, cluster, run_file):
    wrong = []
    for name, more in MORE_BUBBLE.items():
        times = {}
        for each in (4, 8, 16, 32):
            keys = f"{GPIPE} training.global_batch_size={each * STAGES} --json"
            text = plan(echelon, cluster if name == "real" else None, run_file, STAGES, keys)[0]
            times[each] = json.loads(text)["simulation"]["step_time"]
        growth = (times[32] - times[16]) / 16
        for each in (4, 8):
            bubble, waits = 1 - growth * each / times[each], 3 * (STAGES - 1)
            limit = waits / (4 * each * STAGES + waits)
            late = (STAGES - 1) / (each * STAGES + STAGES - 1)
            print(f"{name} blocks, {STAGES} stages, {each * STAGES} micro-batches: bubble "
                  f"{100 * bubble:.1f} %, formula {100 * limit:.1f} %, without early "
                  f"recomputation {100 * late:.1f} %")
            if bubble > min(limit + more, late):
                wrong.append(f"{name} blocks: m = {each} p: bubble {bubble:.3f}")
    return wrong


def main():
    echelon, clusters = sys.argv[1:]
    cluster = os.path.join(clusters, "h100.yaml")
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        run_file = os.path.join(folder, "run.yaml")
        with open(run_file, "w", encoding="utf-8") as file:
            file.write(RUN)
        for name, ranks, published, near, keys in MODELS:
            p = json.loads(plan(echelon, cluster, run_file, ranks, keys + " --json")[0])
            billions = p["model"]["parameters"] / 1e9
            print(f"{name}: {billions:.3f} B parameters on {ranks} ranks, "
                  f"{p['cluster']['step_time']:.3g} s a step")
            if abs(billions - published) > near:
                wrong.append(f"{name}: {billions:.3f} B parameters")
        wrong += bubbles(echelon, cluster, run_file)
        few, many = 2048, 16384
        memory = [plan(echelon, cluster, run_file, ranks,
                       f"{GPT} training.global_batch_size={ranks // 128 * 8}")[1]
                  for ranks in (few, many)]
        each = (memory[1] - memory[0]) / (many - few)
        print(f"{many} ranks: {each:.0f} bytes of memory for each rank")
        if each > MOST_BYTES_PER_RANK:
            wrong.append(f"{each:.0f} bytes of memory for each rank")
    for line in wrong:
        print("FAILED:", line)
    sys.exit(1 if wrong else 0)


main()
