# SPDX-License-Identifier: Apache-2.0
"""For the scripts that compare tokenizers: thousands of texts, and how use_tokenizer is asked."""
import struct
import subprocess
import unicodedata

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_start|>x", "<|im"]
WORDS = (
    "the quick brown fox, don't DON'T we'Re I'LL 'sea it'ſ 1234567890 12 naïve Ærø Straße "
    "привет мир 東京都は日本の首都 안녕하세요 שלום مرحبا नमस्ते สวัสดี 🙂 👩‍👩‍👧‍👦 🇩🇪 "
    "e\u0301 o\u0308\u0323 \ud55c \u1112\u1161\u11ab "
    "x=y+z; /* --- */ #!? ... ½ ² Ⅷ ٣٤ \u212b \u2126"
).split(" ")
BLANKS = [
    " ",
    "  ",
    "   ",
    "\n",
    "\r\n",
    "\n\n",
    " \n",
    "\t",
    "\u00a0",
    "\u180e",
    "\u2028",
    "\u3000",
    "\u0085",
    "\u200b",
    "\u202f",
    "\v",
    "\f",
    "\u1680",
    "\u2003 ",
    "",
    "",
    " ",
]


def corpus(random_, n):
    return [
        "".join(
            random_.choice(WORDS) + random_.choice(BLANKS) for _ in range(random_.randint(1, 60))
        )
        for _ in range(n)
    ]


def any_character(random_):
    """A character that was assigned long ago: engines differ in what is new."""
    while True:
        c = chr(random_.choice([random_.randint(0, 0x2ff), random_.randint(0, 0x33ff),
                                random_.randint(0x4e00, 0x9fa5), random_.randint(0xac00, 0xd7a3),
                                random_.randint(0x10000, 0x1ffff), random_.randint(0x20, 0x7e)]))
        if (
            unicodedata.category(c) not in ("Cs", "Cn")
            and unicodedata.ucd_3_2_0.category(c) != "Cn"
        ):
            return c


def texts(random_, n):
    out = [
        "",
        " ",
        "a",
        "'",
        "\n",
        "".join(map(chr, range(0x300))),
        "a" * 5000,
        "ab" * 3000 + "\n" * 700,
        " " * 3000,
        " " * 3000 + "x",
        "\u00e9" * 900,
        "1" * 1000,
        "!" * 999 + "\r\n\r\n",
        "日" * 2000,
    ]
    out += SPECIAL + [
        "a<|im_start|>xb <|im_start|> <|im <|endoftext|><|endoftext|>",
        "<|im_star" * 50,
    ]
    out += corpus(random_, n)
    for _ in range(n):
        parts = random_.choices(WORDS + BLANKS + SPECIAL, k=random_.randint(0, 20))
        parts += [any_character(random_) for _ in range(random_.randint(0, 30))]
        random_.shuffle(parts)
        out.append("".join(parts))
    return out


def run(use, source, how, inputs):
    sent = b"".join(struct.pack("<I", len(t)) + t for t in inputs)
    got = subprocess.run([use, source, *how], input=sent, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in inputs:
        n, = struct.unpack_from("<I", got, at)
        ids = list(struct.unpack_from(f"<{n}i", got, at + 4))
        m, = struct.unpack_from("<I", got, at + 4 + 4 * n)
        at += 8 + 4 * n
        yield ids, got[at:at + m]
        at += m
    assert at == len(got)
