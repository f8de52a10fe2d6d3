#!/usr/bin/env python3
"""Normal form C as Python's unicodedata has it: every character alone, between others, and random rows of marks and parts.

usage: test_nfc.py build/tests/engine/normal_form
"""
import os
import random
import re
import subprocess
import sys
import unicodedata

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import check  # noqa: E402


def ours(text):
    return subprocess.run([sys.argv[1]], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()


def same(name, text):
    got, want = ours(text), unicodedata.normalize("NFC", text)
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    check.check(name, got == want, f"\n    at {at}: {ascii(got[at - 3:at + 5])}, expected {ascii(want[at - 3:at + 5])}")


def newer():
    """Characters of a Unicode later than that of the program, as this Python may have, which take part in its normal form."""
    with open(os.path.join(os.path.dirname(__file__), "../../engine/model/nfc_tables.h")) as f:
        tables = f.read()
    if f"Unicode {unicodedata.unidata_version}." in tables:
        return set()
    arrays = {name: [list(map(int, row.split(","))) for row in re.findall(r"{([\d,]+)}", rows)]
              for name, rows in re.findall(r"static const \w+ (\w+)\S* = {(.*?)};", tables, re.S)}
    has = {row[0] for name in ("nfc_single", "nfc_pair") for row in arrays[name]}
    has.update(c for first, last, _ in arrays["nfc_class"] for c in range(first, last + 1))
    return {c for c in range(0x110000) if takes_part(c) and c not in has}


def takes_part(c):
    parts = unicodedata.decomposition(chr(c))
    return unicodedata.combining(chr(c)) or (parts and not parts.startswith("<"))


rng = random.Random(1)
left_out = newer()
known = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000 and unicodedata.category(chr(c)) != "Cn" and c not in left_out]
marks = [c for c in known if unicodedata.combining(c)]
parts = [c for c in known if unicodedata.decomposition(c) and not unicodedata.decomposition(c).startswith("<")]
jamo = [chr(c) for c in (*range(0x1100, 0x1200), *range(0xac00, 0xac00 + 100))]
joining = [unicodedata.normalize("NFD", c)[-1] for c in parts]
same("plain text", "Grüße, naïve café 你好 안녕")
same("every character, one behind the other", "".join(known))
same("every character between spaces", " ".join(known))
same("every character behind a letter with a mark", "".join("e\u0323" + c for c in known))
for i in range(20):
    same(f"random rows {i}", "".join(rng.choice(rng.choice((marks, parts, jamo, joining, known))) for _ in range(20000)))
same("a long row of marks", "e" + "".join(rng.choice(marks) for _ in range(5000)))
same("nothing", "")
check.finish()
