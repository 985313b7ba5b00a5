# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on chats, beside TRL's SFTTrainer and PEFT.

    check_peft.py ECHELON

A small Qwen2 folder of transformers is trained on conversations, by us with two pipeline stages of
two tensor ranks, and by SFTTrainer on one rank, in fp32 without dropout. A sample has one
conversation. SFTTrainer reads samples in our order, which is found from losses.

Full fine-tuning has the same losses, and so have runs with LoRA, from our initial adapters and from
PEFT's. PEFT loads the adapters of our checkpoints, and transformers the merged weights, with the
same logits. Damaged adapters, adapters of another base and options of PEFT that we do not have are
refused.

Exits 77 where a package is missing.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import datasets
    import peft
    import safetensors.torch
    import torch
    import transformers
    import trl
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

torch.set_num_threads(1)
datasets.disable_progress_bars()
transformers.logging.disable_progress_bar()
STEPS, BATCH, CHATS, LENGTH = 20, 4, 12, 64
RATE, BETAS, EPS, CLIP = 2e-3, (0.9, 0.95), 1e-4, 0.5
TOLERANCE = 1e-5  # of losses and logits
RANKS = ["--ranks", 4, "parallel.pipeline=2", "parallel.tensor=2"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 56, "max_position_embeddings": 80,
         "rms_norm_eps": 0.002, "rope_theta": 700.0, "tie_word_embeddings": False}
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}"
    "{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def run(*words, fails=None, quiet=False):
    """The output, quiet: without messages. fails: a part of the error that is expected."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert (done.returncode != 0) == bool(fails), f"{words}:\n{text}"
    assert not fails or fails in text, f"{words}: '{fails}' is expected:\n{text}"
    return done.stdout if quiet else text


# ---- model and data ----

def make_tokenizer():
    """Bytes, and ChatML's tokens."""
    bytes_ = {text: i for i, text in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=bytes_, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, normalized=False)
                             for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        chat_template=TEMPLATE)


def make_folder(folder, seed):
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, **SIZES)
    model = transformers.Qwen2ForCausalLM(config)
    for name, x in model.named_parameters():
        x.data.normal_(1.0 if "norm" in name else 0.0, 0.15)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_chats():
    """Too long for two of them to be in one sample."""
    draw = random.Random(5)

    def words(n):
        return "".join(draw.choice("abcdefgh .,") for _ in range(n))
    return [[{"role": "user", "content": words(draw.randint(8, 16))},
             {"role": "assistant", "content": words(draw.randint(12, 22))}] for _ in range(CHATS)]


def prepare(folder):
    make_folder(folder / "hf", 3)
    lines = [json.dumps({"messages": chat}) for chat in make_chats()]
    (folder / "chats.jsonl").write_text("\n".join(lines) + "\n")
    run(sys.argv[1], "data", folder / "chats.jsonl", folder / "chats", "--tokenizer",
        folder / "hf", "--chat-template", "chatml")


# ---- our runs ----

def train(folder, name, *more, fails=None):
    """The run's losses before each step. Its directory is folder / name."""
    (folder / "run.yaml").write_text(json.dumps({  # which is YAML, too
        "model": {"init_from": str(folder / "hf"), "embd_pdrop": 0, "resid_pdrop": 0,
                  "attn_pdrop": 0},
        "data": {"train": str(folder / "chats"), "packing": "documents",
                 "sequence_length": LENGTH},
        "training": {"steps": STEPS, "global_batch_size": BATCH, "micro_batch_size": 2},
        "optimizer": {"name": "adamw", "learning_rate": RATE, "schedule": "constant",
                      "weight_decay": 0, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS,
                      "clip_norm": CLIP},
        "parallel": {"comm": "local", "threads": 1},
        "log": {"tensorboard": False}}))
    run(sys.argv[1], "train", folder / "run.yaml", f"log.directory={folder / name}", *more,
        fails=fails)
    if fails:
        return []
    text = (folder / name / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def checkpoint(folder, name, steps=STEPS):
    return folder / name / "checkpoints" / f"step-{steps:08d}" / "model"


def rows_of(tokenizer):
    """Ids and masks of the conversations."""
    return [tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True,
                                          return_assistant_tokens_mask=True)
            for chat in make_chats()]


def find_order(folder):
    """The conversation at each position of a run: found from losses at a learning rate of 0."""
    count = STEPS * BATCH
    ours = train(folder, "order", "optimizer.learning_rate=0", f"training.steps={count}",
                 "training.global_batch_size=1", "training.micro_batch_size=1")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hf")
    known = []
    for row in rows_of(tokenizer):
        ids = torch.tensor([row["input_ids"]])
        labels = torch.where(torch.tensor([row["assistant_masks"]]) == 1, ids, -100)
        with torch.no_grad():
            known.append(model(ids, labels=labels).loss.item())
    found = []
    for loss in ours:
        near = [i for i in range(CHATS) if abs(known[i] - loss) < 1e-5]
        assert len(near) == 1, f"the loss {loss} is of the conversations {near}"
        found += near
    for first in range(0, count - CHATS + 1, CHATS):
        assert sorted(found[first:first + CHATS]) == list(range(CHATS)), found
    return found


# ---- theirs ----

class Trainer(trl.SFTTrainer):
    """Reads rows in their order, and keeps losses as they are."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, *args, **options):
        result = super().compute_loss(*args, **options)
        self.found.append((result[0] if isinstance(result, tuple) else result).item())
        return result


def train_theirs(folder, model, order):
    """The losses before each step."""
    chats = make_chats()
    config = trl.SFTConfig(
        output_dir=str(folder / "theirs"), max_steps=STEPS, per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=1, learning_rate=RATE, lr_scheduler_type="constant",
        warmup_steps=0, weight_decay=0, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=EPS,
        max_grad_norm=CLIP, optim="adamw_torch", packing=False, assistant_only_loss=True,
        max_length=None, use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False,
        save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=1000)
    trainer = Trainer(
        model=model, args=config,
        train_dataset=datasets.Dataset.from_list([{"messages": chats[i]} for i in order]),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder / "hf"))
    trainer.found = []
    trainer.train()
    return trainer.found


def base(folder, name="hf"):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder / name, dtype=torch.float32, attn_implementation="eager")


def check_losses(what, ours, theirs, falls):
    assert len(ours) == len(theirs) == STEPS, (ours, theirs)
    far = max(abs(a - b) for a, b in zip(ours, theirs))
    print(f"{what}: losses {ours[0]:.4f} to {ours[-1]:.4f}, at most {far:.1e} apart")
    assert sum(theirs[:3]) - sum(theirs[-3:]) > 3 * falls, f"nothing was learned: {theirs}"
    assert far < TOLERANCE, f"{what}: losses are {far} apart:\n{ours}\n{theirs}"


def logits_of(model, folder):
    model.eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hf")
    with torch.no_grad():
        return [model(torch.tensor([row["input_ids"]])).logits for row in rows_of(tokenizer)]


def check_logits(what, ours, theirs):
    far = max((a - b).abs().max().item() for a, b in zip(ours, theirs))
    print(f"{what}: logits at most {far:.1e} apart")
    assert far < TOLERANCE, f"{what}: logits are {far} apart"


def check_full(folder, order):
    ours = train(folder, "full", *RANKS)
    model = base(folder)
    check_losses("full fine-tuning", ours, train_theirs(folder, model, order), 0.1)
    other = train_theirs(folder, base(folder), order[::-1])
    assert max(abs(a - b) for a, b in zip(ours, other)) > 100 * TOLERANCE
    saved = transformers.AutoModelForCausalLM.from_pretrained(checkpoint(folder, "full"))
    check_logits("full fine-tuning", logits_of(saved, folder), logits_of(model, folder))


# ---- LoRA ----

RANK, ALPHA = 3, 12
LORA = [f"lora.rank={RANK}", f"lora.alpha={ALPHA}", "lora.targets=all-linear"]
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def adapted(folder, name):
    """PEFT's model of the adapters in a folder."""
    return peft.PeftModel.from_pretrained(base(folder), name, is_trainable=True)


def make_theirs(folder, name, rank=RANK, **options):
    """Adapters of PEFT with random A and B. Returns their folder."""
    torch.manual_seed(11)
    config = peft.LoraConfig(r=rank, lora_alpha=ALPHA, target_modules=MODULES,
                             init_lora_weights=False, task_type="CAUSAL_LM", **options)
    model = peft.get_peft_model(base(folder), config)
    for key, x in model.named_parameters():
        if "lora_" in key:
            x.data.normal_(0, 0.05)
    model.save_pretrained(folder / name)
    return folder / name


def check_state(ours, theirs):
    """Adapters of our checkpoint and of PEFT's model."""
    saved = safetensors.torch.load_file(ours / "adapter_model.safetensors")
    state = peft.get_peft_model_state_dict(theirs)
    assert set(saved) == set(state), set(saved) ^ set(state)
    return max((saved[key] - state[key]).abs().max().item() for key in state)


def check_lora(folder, order, what, start, *words):
    """Trains from the adapters of a folder, by us with the words."""
    ours = train(folder, what, *words, *RANKS)
    model = adapted(folder, start)
    trained = sum(x.requires_grad for x in model.parameters())
    assert trained == 2 * len(MODULES) * SIZES["num_hidden_layers"], trained
    check_losses(what, ours, train_theirs(folder, model, order), 0.05)
    last = checkpoint(folder, what)
    assert (far := check_state(last, model)) < 1e-4, f"adapters are {far} apart"
    return last, model


def check_folders(folder, last, model):
    """What PEFT and transformers read of our checkpoint, and of the merged weights."""
    theirs = logits_of(model, folder)
    loaded = adapted(folder, last)
    check_logits("our adapters in PEFT", logits_of(loaded, folder), theirs)
    assert loaded.peft_config["default"].base_model_name_or_path == str(folder / "hf")
    whole = transformers.AutoModelForCausalLM.from_pretrained(last)
    check_logits("our folder in transformers", logits_of(whole, folder), theirs)
    run(sys.argv[1], "convert", last, folder / "merged", "--merge")
    merged = transformers.AutoModelForCausalLM.from_pretrained(folder / "merged")
    assert not hasattr(merged, "peft_config")
    check_logits("merged", logits_of(merged, folder), theirs)
    theirs = model.merge_and_unload().state_dict()
    far = max((x - theirs[key]).abs().max().item() for key, x in merged.state_dict().items())
    assert far < 1e-5, f"merged weights are {far} apart"
    for kind in ("bf16", "fp16"):
        run(sys.argv[1], "convert", last, folder / kind, "--merge", "--dtype", kind)
    rounded = transformers.AutoModelForCausalLM.from_pretrained(folder / "bf16").state_dict()
    same = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "merged", dtype=torch.bfloat16).state_dict()
    assert all(torch.equal(rounded[key], same[key]) for key in same)


def ours_of(folder, where):
    """The loss and a text of our own commands."""
    lines = run(sys.argv[1], "eval", where, "--data", folder / "chats")
    text = run(sys.argv[1], "sample", where, "--ids", "5 6 7", "--tokens", 12, "--temperature", 0,
               quiet=True)
    return float(lines.split("loss ")[1].split()[0]), text


def loss_of(model, folder):
    """The mean over all trained tokens of the conversations."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hf")
    loss = tokens = 0
    for row, logits in zip(rows_of(tokenizer), logits_of(model, folder)):
        ids, mask = torch.tensor(row["input_ids"][1:]), torch.tensor(row["assistant_masks"][1:])
        each = torch.nn.functional.cross_entropy(logits[0, :-1], ids, reduction="none")
        loss, tokens = loss + (each * mask).sum().item(), tokens + mask.sum().item()
    return loss / tokens


def check_commands(folder, name, start, last, expected):
    """eval and sample read a run, its folder, a folder of PEFT, and merged weights."""
    loss, text = ours_of(folder, folder / name)
    assert abs(loss - expected) < TOLERANCE, (loss, expected)
    alone = ours_of(folder, folder / "merged")
    beside = ours_of(folder, last)
    assert abs(beside[0] - alone[0]) < TOLERANCE, (beside, alone)
    assert text == alone[1] == beside[1], (text, alone, beside)
    run(sys.argv[1], "convert", start, folder / "merged_start", "--merge")
    first, begun = ours_of(folder, start), ours_of(folder, folder / "merged_start")
    assert abs(first[0] - begun[0]) < TOLERANCE and first[1] == begun[1], (first, begun)
    assert abs(first[0] - alone[0]) > 0.01


def check_resume(folder, name):
    """The last five steps from a checkpoint, on another grid."""
    whole = train(folder, "whole", *LORA, "lora.dropout=0.1", "checkpoint.every=15")
    train(folder, "part", *LORA, "lora.dropout=0.1", "checkpoint.every=15", "training.steps=15",
          *RANKS)
    rest = train(folder, "part", *LORA, "lora.dropout=0.1", "parallel.pipeline=2", "--ranks", 2)
    assert max(abs(a - b) for a, b in zip(whole, rest)) < TOLERANCE, (whole, rest)
    base_ = [safetensors.safe_open(checkpoint(folder, at) / "adapter_model.safetensors", "pt")
             .metadata()["echelon_base_xxh3_128"] for at in ("whole", "part", name)]
    assert len(set(base_)) == 1 and len(base_[0]) == 32, base_


def check_refused(folder, start, last):
    """What is wrong with adapters is said."""
    make_folder(folder / "other", 4)
    at = [f"lora.init_from={last}", *RANKS]
    train(folder, "no", *at, f"model.init_from={folder / 'other'}",
          fails=f"has adapters of the base '{folder / 'hf'}'")
    train(folder, "no", *at, "lora.rank=4", fails="lora.rank")
    train(folder, "no", *at, "lora.targets=q_proj", fails="belongs to no adapter of this model")
    train(folder, "no", f"model.init_from={last}", fails="has adapters beside their base")
    train(folder, "no", f"lora.init_from={folder / 'hf'}", fails="has no adapter_config.json")
    # PEFT's adapters state no base: shapes decide
    text = run(sys.argv[1], "train", folder / "run.yaml", f"log.directory={folder}/other_run",
               f"lora.init_from={start}", f"model.init_from={folder / 'other'}")
    assert f"its base is '{folder / 'hf'}'" in text, text
    run(sys.argv[1], "convert", last, folder / "no", fails="--merge")
    run(sys.argv[1], "convert", folder / "hf", folder / "no", "--merge",
        fails="has no adapter_config.json")
    for option in ({"use_dora": True}, {"bias": "lora_only"}, {"modules_to_save": ["lm_head"]},
                   {"rank_pattern": {"q_proj": 2}}, {"alpha_pattern": {"q_proj": 2}}):
        name = make_theirs(folder, "option", **option)
        train(folder, "no", f"lora.init_from={name}", fails=next(iter(option)))
        run(sys.argv[1], "convert", name, folder / "no", "--merge", fails=next(iter(option)))
    file = make_theirs(folder, "cut") / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    train(folder, "no", f"lora.init_from={folder / 'cut'}", fails="truncated")
    file = last / "adapter_model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    train(folder, "no", f"lora.init_from={last}", fails="damaged")
    file.write_bytes(whole)


def check_scaling(folder):
    """rsLoRA is another alpha; tensors of some layers or modules are adapters of these."""
    name = make_theirs(folder, "rslora", use_rslora=True)
    run(sys.argv[1], "convert", name, folder / "rs_merged", "--merge", "--base", folder / "hf")
    merged = transformers.AutoModelForCausalLM.from_pretrained(folder / "rs_merged")
    check_logits("rsLoRA", logits_of(merged, folder), logits_of(adapted(folder, name), folder))


def main():
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root)
        prepare(folder)
        order = find_order(folder)
        check_full(folder, order)
        train(folder, "first", *LORA, "training.steps=1", "optimizer.learning_rate=0")
        check_lora(folder, order, "ours", checkpoint(folder, "first", 1), *LORA)
        start = make_theirs(folder, "theirs_start")
        last, model = check_lora(folder, order, "theirs", start, f"lora.init_from={start}")
        expected = loss_of(model, folder)
        check_folders(folder, last, model)
        check_commands(folder, "theirs", start, last, expected)
        check_resume(folder, "theirs")
        check_scaling(folder)
        check_refused(folder, start, last)


main()
