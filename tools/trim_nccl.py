#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a copy of NCCL's library that has code for one architecture of GPUs only.

The library of pip install nvidia-nccl-cu13 has 252 MB; an H100 needs 12 of them. The copy has
the same size, but what other architectures need is zero. So strip and xz leave 13 MB to send to a
machine that is there for a few minutes:

    tools/trim_nccl.py LIBRARY TRIMMED --arch 90 && strip TRIMMED && xz TRIMMED

The sections of fat binaries (.nv_fatbin) hold entries of a header and code, one per architecture.
__nv_relfatbin is for the linker of device code and is not read at run time.
"""
import argparse
import pathlib
import struct
import sys

MAGIC = 0xBA55ED50
MACHINE_CODE = 2


def sections(image):
    """Yields the name, the offset and the bytes of each section of a 64-bit ELF file."""
    begin = struct.unpack_from("<Q", image, 0x28)[0]
    size, n, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, begin + i * size) for i in range(n)]
    for header in headers:
        at = headers[names][4] + header[0]
        yield image[at:image.index(b"\0", at)].decode(), header[4], header[5]


def clear(image, begin, end):
    image[begin:end] = bytes(end - begin)


def keep(image, begin, size, arch):
    """Clears the code of other architectures in a section; returns the bytes kept."""
    kept, at, end = 0, begin, begin + size
    while at < end:
        magic, _, header, entries = struct.unpack_from("<IHHQ", image, at)
        if magic != MAGIC:
            at += 8
            continue
        at += header
        stop = at + entries
        while at < stop:
            kind, _, header, code = struct.unpack_from("<HHIQ", image, at)
            if kind == MACHINE_CODE and struct.unpack_from("<I", image, at + 28)[0] == arch:
                kept += code
            else:
                clear(image, at + header, at + header + code)
            at += header + code
    return kept


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("library", type=pathlib.Path)
    options.add_argument("trimmed", type=pathlib.Path)
    options.add_argument("--arch", type=int, required=True, help="90: sm_90, an H100 or H200")
    options = options.parse_args()
    image = bytearray(options.library.read_bytes())
    if image[:5] != b"\x7fELF\x02":
        sys.exit(f"{options.library} is not a library of a 64-bit system")
    kept = 0
    for name, begin, size in list(sections(image)):
        if name == ".nv_fatbin":
            kept += keep(image, begin, size, options.arch)
        elif name == "__nv_relfatbin":
            clear(image, begin, begin + size)
    if not kept:
        sys.exit(f"{options.library} has no code for sm_{options.arch}")
    options.trimmed.write_bytes(image)
    print(f"{options.trimmed}: {kept / 1e6:.1f} MB of code for sm_{options.arch}")


if __name__ == "__main__":
    main()
