#!/usr/bin/env python3
"""usage: check_ruler.py RULER [TOKENS...]

Compares the samples of `kvfate tasks ruler:TASK` with the samples of the scripts in a checkout of the public repository RULER: prompts, answers and
lengths of all 13 tasks must be equal, byte for byte.

Both sides count words and marks as tokens and split sentences in the same way, because only the recipe is compared.  Essays, SQuAD, HotpotQA
and word lists are made up here in their published formats.  The Python that runs this needs numpy, scipy and tqdm."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
from kvfate import published, ruler  # noqa: E402

SAMPLES, SEED = 6, 42
TOKENIZER = """import re
class T:
    def text_to_tokens(self, text):
        return re.findall(r"\\w+|[^\\w\\s]", text)
def select_tokenizer(kind, path):
    return T()
"""
WONDERWORDS = """import os
def _get_words_from_text_file(name):
    with open(os.path.join(%r, name)) as f:
        return [line.rstrip() for line in f]
"""
NLTK = "import sys\nsys.path.insert(0, %r)\nfrom kvfate.ruler import sentences as sent_tokenize\n"


class Words:
    """Counts words and marks."""

    def count(self, text, raw=True, answer_prefix=""):
        return len(re.findall(r"\w+|[^\w\s]", text + answer_prefix))


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text if isinstance(text, str) else json.dumps(text))


def made_up(base):
    """Writes essays and questions in the published formats."""
    rng = random.Random(3)
    words = "the of a river mill stone Paris walked 1830 slowly Amy did, (quite) not know \"why\" it rained e.g. there".split()
    def sentence():
        return " ".join(rng.choice(words) for _ in range(rng.randrange(4, 20))).capitalize() + rng.choice(".!?")
    essay = "\n\n".join(" ".join(sentence() for _ in range(12)) for _ in range(60))
    articles = [{"title": "T%d" % i, "paragraphs": [{"context": "%d. %s" % (i * 10 + j, " ".join(sentence() for _ in range(5))), "qas": [
        {"question": sentence(), "is_impossible": (i + j + k) % 3 == 0, "answers": [{"text": sentence()} for _ in range(k + 1)]} for k in range(3)]}
        for j in range(8)]} for i in range(12)]
    hotpot = [{"question": sentence(), "answer": rng.choice(words), "context": [["%s %d" % (rng.choice(words), rng.randrange(400)), [sentence(), " " + sentence()]] for _ in range(10)]} for _ in range(40)]
    write(os.path.join(base, "PaulGrahamEssays.json"), {"text": essay})
    write(os.path.join(base, "squad.json"), {"data": articles})
    write(os.path.join(base, "hotpotqa.json"), hotpot)
    for name, n in zip(ruler.WORD_LISTS, (3000, 30, 1500)):
        write(os.path.join(base, name), "\n".join("%s%d " % (rng.choice(words), i) for i in range(n)) + "\n\nmill\n")
    write(os.path.join(base, "english_words.json"), {str(i): "word%d" % i for i in range(20000)})


def published_samples(work, name, tokens):
    """Runs the published script of a task and returns its lines."""
    data = os.path.join(work, "scripts", "data")
    kind, how = ruler.TASKS[name]
    told = published.constants(work, ruler.CONSTANTS, ["TASKS"])["TASKS"][kind]
    words = ["--save_dir", work + "/out", "--save_name", name, "--tokenizer_path", "x", "--tokenizer_type", "hf", "--max_seq_length", str(tokens),
             "--tokens_to_generate", str(told["tokens_to_generate"]), "--num_samples", str(SAMPLES), "--random_seed", str(SEED), "--template", told["template"] + told["answer_prefix"]]
    if kind == "niah":
        words += ["--type_haystack", how["haystack"], "--type_needle_k", how["key"], "--type_needle_v", how["value"], "--num_needle_k", str(how["keys"]),
                  "--num_needle_v", str(how["values"]), "--num_needle_q", str(how["queries"])]
    if kind == "qa":
        words += ["--dataset", how["source"]]
    done = subprocess.run([sys.executable, os.path.join(data, "synthetic", kind + ".py"), *words], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.path.join(work, "stubs")}, cwd=os.path.join(data, "synthetic"))
    if done.returncode:
        sys.exit("%s: the published script failed:\n%s" % (name, done.stderr[-2000:]))
    with open(os.path.join(work, "out", name, "validation.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__.split("\n")[0])
    failures = 0
    with tempfile.TemporaryDirectory(prefix="kvfate-ruler-") as work:
        shutil.copytree(os.path.join(argv[1], "scripts"), os.path.join(work, "scripts"))
        base = os.path.join(work, "scripts/data/synthetic/json")
        made_up(base)
        write(os.path.join(work, "stubs/tokenizer.py"), TOKENIZER)
        write(os.path.join(work, "stubs/wonderwords/__init__.py"), "from . import random_word\n")
        write(os.path.join(work, "stubs/wonderwords/random_word.py"), WONDERWORDS % base)
        write(os.path.join(work, "stubs/nltk/__init__.py"), "")
        write(os.path.join(work, "stubs/nltk/tokenize.py"), NLTK % os.path.join(ROOT, "python"))
        files = {"essay": "PaulGrahamEssays.json", "squad": "squad.json", "hotpotqa": "hotpotqa.json"}
        for tokens in map(int, argv[2:] or ("2048", "4096", "9000")):
            for name in ruler.TASKS:
                need = ruler.needs(name)
                made = ruler.Ruler(name, Words(), tokens, SEED, work, [os.path.join(base, files[need])] if need else [], base, raw=True)
                ours, theirs = list(made.samples(SAMPLES)), published_samples(work, name, tokens)
                equal = [(x.context + x.question, x.answer_prefix, x.answers, x.tokens + made.limit) == (y["input"], y["answer_prefix"], y["outputs"], y["length"])
                         for x, y in zip(ours, theirs)]
                for x, y in list(zip(ours, theirs))[:0 if all(equal) else SAMPLES]:
                    a, b = (x.context + x.question, x.answer_prefix, x.answers, x.tokens + made.limit), (y["input"], y["answer_prefix"], y["outputs"], y["length"])
                    print("    ", [(p[-200:], q[-200:]) if isinstance(p, str) else (p, q) for p, q in zip(a, b) if p != q])
                failures += equal != [True] * SAMPLES
                print("%-18s %6d tokens: %d of %d samples equal, lengths %d to %d" % (name, tokens, sum(equal), SAMPLES, min(y["length"] for y in theirs), max(y["length"] for y in theirs)))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main(sys.argv)
