# SPDX-License-Identifier: Apache-2.0
#
# Token files against a reader and a writer of Megatron's format in numpy, written from its layout
# (megatron/core/datasets/indexed_dataset.py: header, then numpy.frombuffer of lengths, pointers,
# document indices and modes). Usage: check_megatron.py USE_TOKENS ECHELON; 77: no numpy.
import json, os, random, struct, subprocess, sys, tempfile

try:
    import numpy
except ImportError:
    print("skipped: no numpy")
    sys.exit(77)

DTYPES = {1: numpy.uint8, 4: numpy.int32, 5: numpy.int64, 8: numpy.uint16}


def read(prefix):
    with open(prefix + ".idx", "rb") as file:
        assert file.read(9) == b"MMIDIDX\0\0" and struct.unpack("<Q", file.read(8)) == (1,)
        dtype = DTYPES[struct.unpack("<B", file.read(1))[0]]
        sequences, entries = struct.unpack("<QQ", file.read(16))
        rest = file.read()
    lengths = numpy.frombuffer(rest, numpy.int32, sequences, 0)
    pointers = numpy.frombuffer(rest, numpy.int64, sequences, lengths.nbytes)
    documents = numpy.frombuffer(rest, numpy.int64, entries, lengths.nbytes + pointers.nbytes)
    at = lengths.nbytes + pointers.nbytes + documents.nbytes
    modes = numpy.frombuffer(rest, numpy.int8, sequences, at) if at < len(rest) else None
    assert at + (sequences if modes is not None else 0) == len(rest)
    data = open(prefix + ".bin", "rb").read()
    ids = [numpy.frombuffer(data, dtype, n, p).tolist() for n, p in zip(lengths, pointers)]
    return ids, documents.tolist(), modes.tolist() if modes is not None else None


def write(prefix, ids, documents, modes, code):
    dtype = DTYPES[code]
    lengths = numpy.array([len(i) for i in ids], numpy.int32)
    width = numpy.dtype(dtype).itemsize
    pointers = numpy.concatenate(([0], numpy.cumsum(lengths.astype(numpy.int64))))[:-1] * width
    with open(prefix + ".bin", "wb") as file:
        for i in ids:
            file.write(numpy.array(i, dtype).tobytes(order="C"))
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(ids), len(documents)))
        file.write(lengths.tobytes() + pointers.astype(numpy.int64).tobytes())
        file.write(numpy.array(documents, numpy.int64).tobytes())
        if modes is not None:
            file.write(numpy.array(modes, numpy.int8).tobytes())


def check_ours(echelon, folder):
    """What `echelon data` writes, as Megatron reads it."""
    lines = [{"text": "\u00e4" * i} if i % 3 else {"prompt": "q" * i, "completion": "a%d" % i}
             for i in range(1, 40)]
    with open(folder + "/in.jsonl", "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    subprocess.run([echelon, "data", folder + "/in.jsonl", folder + "/ours"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ids, documents, modes = read(folder + "/ours")
    expected, expected_documents, expected_modes = [], [0], []
    for line in lines:
        if "prompt" in line:
            expected.append(list(line["prompt"].encode()))
            expected_modes.append(1)
        text = line.get("text", line.get("completion"))
        expected.append(list(text.encode()) + [256])
        expected_modes.append(0)
        expected_documents.append(len(expected))
    assert (ids, documents, modes) == (expected, expected_documents, expected_modes)


def check_theirs(use, folder, seed):
    """What Megatron writes, as our reader reads it: the stream, documents and prompts."""
    draw = random.Random(seed)
    code = draw.choice(list(DTYPES))
    top = 255 if code == 1 else 50000
    ids = [
        [draw.randrange(top) for _ in range(draw.randrange(6))]
        for _ in range(draw.randrange(1, 80))
    ]
    documents = sorted({0, len(ids)} | {draw.randrange(len(ids)) for _ in range(10)})
    modes = [draw.randrange(2) for _ in ids] if draw.random() < 0.5 else None
    write(folder + "/theirs", ids, documents, modes, code)
    told = subprocess.run(
        [use, folder + "/theirs"], check=True, capture_output=True, text=True
    ).stdout
    expected, opens = [], False
    for i, sequence in enumerate(ids):
        opens = opens or i in documents[:-1]
        for k, token in enumerate(sequence):
            expected.append((token, int(opens and k == 0), modes[i] if modes else 0))
        opens = opens and not sequence
    assert [tuple(map(int, line.split())) for line in told.splitlines()] == expected


use, echelon = sys.argv[1:3]
with tempfile.TemporaryDirectory() as folder:
    check_ours(echelon, folder)
    for seed in range(60):
        check_theirs(use, folder, seed)
print("token files: as Megatron writes and reads them")
