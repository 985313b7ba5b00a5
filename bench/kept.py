#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Working memory of training steps that keep fewer bytes for the backward, next to the figures of
the papers: Gist's codes (Jain et al. 2018), recomputed segments (Chen et al. 2016) and reversible
units (Gomez et al. 2017).

    python3 bench/kept.py [--program build/release/echelon] [--batch 64]
    python3 bench/kept.py --loss --steps 500   # trains: losses with narrow codes beside none's

The first command plans only, so it needs seconds and no data but what it draws. Working
memory is that of activations, their gradients, scratch and the batch at the fullest moment of
rank 0; a run's is the plan's (tests/app/test_image_codes.c)."""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIDE, CLASSES, MIB = 32, 10, 1 << 20
CODES = ("none", "lossless", "fp16", "fp10", "fp8")
NORMS = "memory.encode_norms=true"
# Jain et al. 2018: memory of networks without codes over that with codes, on average.
GIST = {"lossless": "1.4", "fp16": "", "fp10": "", "fp8": "1.8"}

IMAGES = ["training.global_batch_size={batch}", "training.micro_batch_size={batch}",
          f"model.image_height={SIDE}", f"model.image_width={SIDE}", f"model.num_classes={CLASSES}"]
VGG = ["model.architecture=vgg", "model.weight_layers=16", *IMAGES]
RESNET = ["model.architecture=resnet", *IMAGES]
REVNET = ["model.architecture=revnet", *IMAGES]
TRANSFORMER = ["model.architecture=gpt2", "model.hidden_size=768", "model.num_hidden_layers=12",
               "model.num_attention_heads=12", "model.hidden_act=relu", "data.sequence_length=256",
               "training.global_batch_size=4", "training.micro_batch_size=4"]


def call(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr.strip()}")
    return done.stdout


def write_bars(path, images=8000):
    """Noise with a bright bar whose height is the class, in CIFAR-10's format. A VGG without norms
    learns it within 100 steps. A fifth of the classes is wrong, so losses have a floor."""
    rng = random.Random(1)
    dark = bytes(value // 3 for value in range(256))
    bright = bytes(value // 3 + 150 for value in range(256))
    with open(path, "wb") as file:
        for _ in range(images):
            bar = rng.randrange(CLASSES)
            label = bar if rng.random() < 0.8 else rng.randrange(CLASSES)
            rows = (rng.randbytes(SIDE).translate(bright if row % SIDE // 3 == bar else dark)
                    for row in range(3 * SIDE))
            file.write(bytes([label]) + b"".join(rows))


def make_data(program, folder):
    """Images and a text, packed. Returns the keys that name them, by sort of sample."""
    write_bars(folder / "data_batch_1.bin")
    call([program, "data", folder / "data_batch_1.bin", folder / "bars", "--images"])
    text = "\n".join(f"{n} times {n} is {n * n}; and {n} plus {n} is {2 * n}." for n in
                     range(1, 20000))
    (folder / "text.txt").write_text(text)
    call([program, "data", folder / "text.txt", folder / "text"])
    return {"images": [f"data.train={folder}/bars.images"],
            "text": [f"data.train={folder}/text"]}


def run_file(folder, words):
    """An empty run file: all keys are words."""
    path = folder / "run.yaml"
    path.write_text("parallel: {threads: 2, comm: local}\n")
    return [path, f"log.directory={folder}/run", "training.check_every=0", *words]


def working_of(options, words):
    """Bytes that rank 0's plan needs at once."""
    words = [word.format(batch=options.batch) for word in words]
    printed = call([options.program, "plan", "--json", *run_file(options.folder, [
        "training.steps=1", "optimizer.name=sgd", "optimizer.learning_rate=0.1", *words])])
    return json.loads(printed)["plans"][0]["memory"]["working"]["bytes"]


def table(title, header, rows):
    print(f"\n{title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


# ---- Gist ----


def codes_table(options, title, words, norms):
    none, rows = working_of(options, words), []
    choices = [(code, []) for code in CODES]
    if norms:
        choices += [("fp16", [NORMS]), ("fp10", [NORMS])]
    for code, more in choices:
        used = working_of(options, [*words, f"memory.encode={code}", *more])
        name = f"`{code}`" + (", `encode_norms`" if more else "")
        rows.append((name, f"{used / MIB:,.1f}", f"1 / {none / used:.2f}",
                     f"1 / {GIST[code]}" if GIST.get(code) and not more else ""))
    table(title, ("`memory.encode`", "working memory, MiB", "of `none`", "Gist, average"), rows)


def show_codes(options, data):
    batch = options.batch
    for name, words, sort, norms in (
            (f"VGG-16, {batch} images of 32 x 32", VGG, "images", False),
            (f"ResNet-50, {batch} images of 32 x 32", [*RESNET, "model.weight_layers=50"],
             "images", True),
            ("GPT-2 124M with ReLU, 4 x 256 bytes", TRANSFORMER, "text", True)):
        codes_table(options, name, [*words, *data[sort]], norms)


# ---- Chen, and RevNet ----


def show_depths(options, data):
    rows = []
    for depth in (50, 101, 152):
        words = [*RESNET, f"model.weight_layers={depth}", *data["images"]]
        kept = working_of(options, words)
        made = working_of(options, [*words, "memory.recompute=full"])
        rows.append((f"ResNet-{depth}", f"{kept / MIB:,.0f}", f"{made / MIB:,.0f}",
                     f"1 / {kept / made:.1f}", "1 / 6.9 of 1,000 layers (7 of 48 GB)"))
    for depth in (38, 74, 110, 218):
        words = [*REVNET, f"model.weight_layers={depth}", *data["images"]]
        kept = working_of(options, [*words, "memory.invert=false"])
        made = working_of(options, words)
        rows.append((f"RevNet-{depth}", f"{kept / MIB:,.0f}", f"{made / MIB:,.0f}",
                     f"1 / {kept / made:.1f}", "the same at each depth"))
    table(f"Depth, {options.batch} images of 32 x 32", (
        "network", "all kept, MiB", "recomputed or inverted, MiB", "share", "Chen; Gomez"), rows)


# ---- losses ----

SMALL_VGG = ["model.architecture=vgg", "model.weight_layers=11", "model.base_channels=8",
             "model.hidden_size=64", "model.classifier_dropout=0", *IMAGES,
             "optimizer.learning_rate=1e-3", "optimizer.warmup_steps=20"]
SMALL_GPT2 = ["model.architecture=gpt2", "model.hidden_size=64", "model.num_hidden_layers=2",
              "model.num_attention_heads=2", "model.hidden_act=relu", "data.sequence_length=64",
              "training.global_batch_size=8", "training.micro_batch_size=8",
              "optimizer.learning_rate=2e-3"]


def train_loss(options, words):
    """The mean loss of the last tenth of the steps."""
    words = [word.format(batch=16) for word in words]
    shutil.rmtree(options.folder / "run", ignore_errors=True)
    call([options.program, "train", *run_file(options.folder, [
        *words, f"training.steps={options.steps}", f"checkpoint.every={10 * options.steps}",
        "log.every=1"])])
    lines = (options.folder / "run/metrics.jsonl").read_text().splitlines()
    losses = [loss for loss in (json.loads(line).get("loss") for line in lines) if loss]
    last = losses[-max(1, options.steps // 10):]
    return sum(last) / len(last)


def show_losses(options, data):
    rows = []
    for name, words, sort in (("VGG-11, 8 channels", SMALL_VGG, "images"),
                              ("GPT-2 with ReLU, 64 wide", SMALL_GPT2, "text")):
        none = train_loss(options, [*words, *data[sort]])
        row = [name, f"{none:.4f}"]
        for code in ("fp16", "fp10", "fp8"):
            loss = train_loss(options, [*words, *data[sort], f"memory.encode={code}"])
            row.append(f"{loss:.4f} ({100 * (loss / none - 1):+.2f}%)")
        rows.append(row)
    table(f"Mean training loss of the last tenth of {options.steps} steps",
          ("network", "none", "fp16", "fp10", "fp8"), rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/echelon", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=64, help="images of a step")
    parser.add_argument("--loss", action="store_true", help="trains in place of planning")
    parser.add_argument("--steps", type=int, default=500, help="of each training")
    options = parser.parse_args()
    options.program = options.program.resolve()
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        data = make_data(options.program, options.folder)
        if options.loss:
            show_losses(options, data)
            return
        show_codes(options, data)
        show_depths(options, data)


if __name__ == "__main__":
    main()
