# SPDX-License-Identifier: Apache-2.0
"""Philox4x32-10 (Salmon et al. 2011), counted as docs/design/correctness.md says: key = seed,
counter = (element / 4 in 64 bits, step, layer and site)."""
import numpy as np


def words(seed, step, layer, site, elements):
    """The 32-bit word of each element."""
    elements = np.asarray(elements, dtype=np.uint64)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    quads = elements // np.uint64(4)
    c = [quads & mask, quads >> shift, np.full_like(quads, step),
         np.full_like(quads, layer << 8 | site)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> shift) ^ c[1] ^ np.uint64(k[0]), b & mask,
             (a >> shift) ^ c[3] ^ np.uint64(k[1]), a & mask]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.choose((elements % np.uint64(4)).astype(int), c)


def uniforms(*where):
    return (words(*where) + 0.5) * 2.0 ** -32


def normals(seed, step, layer, site, elements):
    """Box and Muller (1958): of words 0 and 1 cosine and sine, of 2 and 3 likewise."""
    elements = np.asarray(elements)
    pair = elements // 2 * 2
    r = np.sqrt(-2 * np.log(uniforms(seed, step, layer, site, pair)))
    angle = 2 * np.pi * uniforms(seed, step, layer, site, pair + 1)
    return r * np.where(elements % 2 == 0, np.cos(angle), np.sin(angle))
