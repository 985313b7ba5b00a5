#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Working memory of training steps that keep fewer bytes for the backward, next to the figures of
the papers: Gist's codes (Jain et al. 2018), recomputed segments (Chen et al. 2016) and reversible
units (Gomez et al. 2017).

    python3 bench/kept.py [--program build/release/echelon] [--batch 64]
    python3 bench/kept.py --loss --steps 500   # trains: losses with narrow codes beside none's

The networks are run files, bench/runs. The first command plans only, so it needs seconds and no
data but what it draws. Working
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
SIDE, CLASSES = 32, 10  # of images, as in the run files
MIB = 1 << 20
RUNS = ROOT / "bench/runs"
CODES = ("none", "lossless", "fp16", "fp10", "fp8")
NORMS = "memory.encode_norms=true"
# Jain et al. 2018: memory of networks without codes over that with codes, on average.
GIST = {"lossless": "1.4", "fp16": "", "fp10": "", "fp8": "1.8"}


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


def run_words(options, name, words):
    """A run file of bench/runs, and the words of the command line."""
    return [RUNS / f"{name}.yaml", f"log.directory={options.folder}/run", "training.check_every=0",
            *words]


def working_of(options, name, words):
    """Bytes that rank 0's plan needs at once."""
    batch = [f"training.{key}={options.batch}" for key in ("global_batch_size", "micro_batch_size")]
    printed = call([options.program, "plan", "--json", *run_words(options, name, [
        *(batch if name != "relu_gpt2" else []), *words])])
    return json.loads(printed)["plans"][0]["memory"]["working"]["bytes"]


def table(title, header, rows):
    print(f"\n{title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


# ---- Gist ----


def codes_table(options, title, name, words, norms):
    none, rows = working_of(options, name, words), []
    choices = [(code, []) for code in CODES]
    if norms:
        choices += [("fp16", [NORMS]), ("fp10", [NORMS])]
    for code, more in choices:
        used = working_of(options, name, [*words, f"memory.encode={code}", *more])
        shown = f"`{code}`" + (", `encode_norms`" if more else "")
        rows.append((shown, f"{used / MIB:,.1f}", f"1 / {none / used:.2f}",
                     f"1 / {GIST[code]}" if GIST.get(code) and not more else ""))
    table(title, ("`memory.encode`", "working memory, MiB", "of `none`", "Gist, average"), rows)


def show_codes(options, data):
    batch = options.batch
    for title, name, sort, norms in (
            (f"VGG-16, {batch} images of 32 x 32", "vgg16", "images", False),
            (f"ResNet-50, {batch} images of 32 x 32", "resnet50", "images", True),
            ("GPT-2 124M with ReLU, 4 x 256 bytes", "relu_gpt2", "text", True)):
        codes_table(options, title, name, data[sort], norms)


# ---- Chen, and RevNet ----


def show_depths(options, data):
    rows = []
    for depth, segment in ((50, "auto"), (101, "auto"), (152, "auto"), (1001, 6)):
        words = [f"model.weight_layers={depth}", "memory.device_limit=1TB", *data["images"]]
        kept = working_of(options, "resnet50", words)
        made = working_of(options, "resnet50", [*words, "memory.recompute=full",
                                                f"memory.recompute_blocks={segment}"])
        name = f"ResNet-{depth}" + (f", segments of {segment}" if segment != "auto" else "")
        rows.append((name, f"{kept / MIB:,.0f}", f"{made / MIB:,.0f}", f"1 / {kept / made:.1f}",
                     "1 / 6.9 (7 of 48 GB)" if depth == 1001 else ""))
    for depth in (38, 74, 110, 218):
        words = [f"model.weight_layers={depth}", *data["images"]]
        kept = working_of(options, "revnet38", [*words, "memory.invert=false"])
        made = working_of(options, "revnet38", words)
        rows.append((f"RevNet-{depth}", f"{kept / MIB:,.0f}", f"{made / MIB:,.0f}",
                     f"1 / {kept / made:.1f}", "the same at each depth"))
    table(f"Depth, {options.batch} images of 32 x 32", (
        "network", "all kept, MiB", "recomputed or inverted, MiB", "share", "Chen; Gomez"), rows)


# ---- losses ----

def train_loss(options, name, words):
    """The mean loss of the last tenth of the steps."""
    shutil.rmtree(options.folder / "run", ignore_errors=True)
    call([options.program, "train", *run_words(options, name, [
        *words, f"training.steps={options.steps}", f"checkpoint.every={10 * options.steps}"])])
    lines = (options.folder / "run/metrics.jsonl").read_text().splitlines()
    losses = [loss for loss in (json.loads(line).get("loss") for line in lines) if loss]
    last = losses[-max(1, options.steps // 10):]
    return sum(last) / len(last)


def show_losses(options, data):
    rows = []
    for title, name, sort in (("VGG-11, 8 channels", "small_vgg", "images"),
                              ("GPT-2 with ReLU, 64 wide", "small_gpt2", "text")):
        none = train_loss(options, name, data[sort])
        row = [title, f"{none:.4f}"]
        for code in ("fp16", "fp10", "fp8"):
            loss = train_loss(options, name, [*data[sort], f"memory.encode={code}"])
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
