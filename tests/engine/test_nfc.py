#!/usr/bin/env python3
"""Normal form C compared with Python's unicodedata: every character on its own, between others, and
random rows of marks and parts.

usage: test_nfc.py build/tests/engine/normal_form
"""
import os
import random
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


rng = random.Random(1)
# Characters that both know: the library and this Python can have different Unicode versions.
known = [c for c in map(chr, map(int, subprocess.check_output([sys.argv[1], "assigned"]).split())) if unicodedata.category(c) != "Cn"]
check.check("characters", len(known) > 200000, len(known))
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
same("a row of marks", "e" + "".join(rng.choice(marks) for _ in range(5000)))
single = [c for c in marks if not unicodedata.decomposition(c)]
row = [rng.choice(single) for _ in range(500000)]  # insertion, as in Python, would take minutes
check.check("a long row of marks", ours("\u4e2d" + "".join(row)) == "\u4e2d" + "".join(sorted(row, key=unicodedata.combining)))
same("nothing", "")
check.finish()
