#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images to try a network on: ten classes of shapes, in the format of CIFAR-10.

    examples/make_shapes.py FOLDER [--train 5000] [--test 1000] [--seed 1]
        [--classes disc,ring] [--png]

writes FOLDER/data_batch_1.bin and FOLDER/test_batch.bin, and the classes' names. With --png it
writes folders of PNG files, FOLDER/train/CLASS and FOLDER/test/CLASS, instead. A shape has a
random place, size, angle and color, on a background of another color, and each pixel has noise.
`echelon data FOLDER/data_batch_1.bin shapes --images` then packs them.
"""
import argparse
import math
import random
import struct
import zlib
from pathlib import Path

SIDE = 32


def star(x, y):
    return math.hypot(x, y) < 0.55 + 0.45 * math.cos(5 * math.atan2(y, x))


# Whether a point of the square from -1 to 1 belongs to the shape.
SHAPES = {
    "disc": lambda x, y: math.hypot(x, y) < 0.8,
    "ring": lambda x, y: 0.5 < math.hypot(x, y) < 0.9,
    "square": lambda x, y: max(abs(x), abs(y)) < 0.7,
    "frame": lambda x, y: 0.45 < max(abs(x), abs(y)) < 0.8,
    "triangle": lambda x, y: -0.6 < y < 0.9 and abs(x) < (0.9 - y) * 0.55,
    "cross": lambda x, y: min(abs(x), abs(y)) < 0.25 and max(abs(x), abs(y)) < 0.9,
    "bar": lambda x, y: abs(x) < 0.25 and abs(y) < 0.95,
    "two_bars": lambda x, y: 0.3 < abs(x) < 0.6 and abs(y) < 0.9,
    "star": star,
    "half_disc": lambda x, y: y > 0 and math.hypot(x, y) < 0.9,
}


def draw_color(rng):
    return [rng.randrange(256) for _ in range(3)]


def draw_colors(rng):
    """Colors of the shape and of its background, which differ."""
    while True:
        shape, ground = draw_color(rng), draw_color(rng)
        if sum(abs(a - b) for a, b in zip(shape, ground)) > 150:
            return shape, ground


def draw_image(rng, inside):
    """The image's bytes by channel and row, as CIFAR-10 has them."""
    shape, ground = draw_colors(rng)
    size, angle = rng.uniform(0.45, 0.8), rng.uniform(0, 2 * math.pi)
    left, up = rng.uniform(-0.25, 0.25), rng.uniform(-0.25, 0.25)
    cos, sin = math.cos(angle) / size, math.sin(angle) / size
    planes = [bytearray(), bytearray(), bytearray()]
    for row in range(SIDE):
        y = (2 * row + 1) / SIDE - 1 - up
        for column in range(SIDE):
            x = (2 * column + 1) / SIDE - 1 - left
            color = shape if inside(cos * x - sin * y, sin * x + cos * y) else ground
            noise = int(rng.gauss(0, 12))
            for plane, value in zip(planes, color):
                plane.append(min(255, max(0, value + noise)))
    return b"".join(planes)


def write_batch(path, images, names, rng):
    with open(path, "wb") as file:
        for i in range(images):
            label = i % len(names)
            file.write(bytes([label]) + draw_image(rng, SHAPES[names[label]]))


def png_chunk(kind, data):
    return (struct.pack(">I", len(data)) + kind + data +
            struct.pack(">I", zlib.crc32(kind + data)))


def write_png(path, planes):
    """planes: the bytes by channel and row."""
    red, green, blue = (planes[i * SIDE * SIDE:][:SIDE * SIDE] for i in range(3))
    pixels = bytes(value for pixel in zip(red, green, blue) for value in pixel)
    rows = b"".join(b"\0" + pixels[row * 3 * SIDE:][:3 * SIDE] for row in range(SIDE))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)  # 8 bits, red green blue
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) +
                     png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b""))


def write_folders(folder, images, names, rng):
    """A folder for each class."""
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for i in range(images):
        name = names[i % len(names)]
        write_png(folder / name / f"{i // len(names):05}.png", draw_image(rng, SHAPES[name]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=5000, help="images to train on")
    parser.add_argument("--test", type=int, default=1000, help="images to validate on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--classes", default=",".join(SHAPES), help="names, with commas")
    parser.add_argument("--png", action="store_true", help="folders of PNG files")
    options = parser.parse_args()
    names = options.classes.split(",")
    unknown = [name for name in names if name not in SHAPES]
    if unknown:
        parser.error(f"no shape '{unknown[0]}'; there are {', '.join(SHAPES)}")
    rng = random.Random(options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.png:
        write_folders(options.folder / "train", options.train, names, rng)
        write_folders(options.folder / "test", options.test, names, rng)
    else:
        write_batch(options.folder / "data_batch_1.bin", options.train, names, rng)
        write_batch(options.folder / "test_batch.bin", options.test, names, rng)
    print(f"{options.folder}: {options.train} images to train on, {options.test} to test")
    (options.folder / "batches.meta.txt").write_text("\n".join(names) + "\n")


if __name__ == "__main__":
    main()
