#!/usr/bin/env python3
"""Replace the answers of questions by the model's own answers, as JSONL for `kvfate eval`.

usage: bench/own_answers.py QUESTIONS.jsonl N OUT.jsonl     the first N questions, greedy answers of at most 256
tokens

Existing lines of OUT are kept, so a stopped run continues; an incomplete last line is dropped and made again.
KVFATE is the program (default: kvfate).
"""
import json
import os
import subprocess
import sys


def kept_lines(out):
    """Return the number of complete lines of OUT, and remove an incomplete one after them."""
    if not os.path.exists(out):
        return 0
    with open(out, "r+b") as f:
        data = f.read()
        f.truncate(data.rfind(b"\n") + 1)
    return data.count(b"\n")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, n, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    with open(source, encoding="utf-8") as f:
        questions = [json.loads(line)["question"] for _, line in zip(range(n), f)]
    done = kept_lines(out)
    with open(out, "a", encoding="utf-8") as f:
        for q in questions[done:]:
            run = subprocess.run([os.environ.get("KVFATE", "kvfate"), "generate", "-q", "-p", q, "-n", "256"], check=True,
                                 stdout=subprocess.PIPE)
            answer = run.stdout.decode("utf-8", "replace").strip()
            f.write(json.dumps({"question": q, "answer": answer}, ensure_ascii=False) + "\n")
            f.flush()


if __name__ == "__main__":
    main()
