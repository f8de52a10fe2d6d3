#!/usr/bin/env python3
"""tasks: compares prompts, answers, limits and truncation of each benchmark with its small files and
templates, and the samples of RULER with the recipe. Tests bad input."""
import collections
import json
import os
import re
import sys

import benchmark_files as b
from harness import Suite

s = Suite()
BASE, MODEL = s.work.name, s.model()
RULER, LONGBENCH, INFINITE, SCBENCH = (make(BASE) for make in (b.ruler, b.longbench, b.infinitebench, b.scbench))
WORDS = os.path.join(BASE, "words")


def tasks(what, *argv, repository=None):
    out = s.path("out.jsonl")
    more = ["--repository", repository] if repository else []
    r = s.accepted("tasks " + what, ["tasks", what, *argv, *more, "-m", MODEL, "-o", out])
    if r.returncode:
        return []
    with open(out, encoding="utf-8") as f:
        made = [json.loads(line) for line in f]
    for x in made:  # the two forms of a prompt as one
        x["raw"] = "text" in x
        if "messages" in x:
            continue
        s.check("nothing is between the parts", x["raw"] or "prompt" in x or x["join"] == "", x)
        x["context"] = x.get("context", x.get("text", "")) if "question" in x else ""
        x["question"] = x.get("question", x.get("text", x.get("prompt")))
    return made


os.environ["PATH"] = os.path.dirname(s.exe) + os.pathsep + os.environ["PATH"]
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from kvfate import Tokenizer  # noqa: E402
VOCABULARY = Tokenizer(MODEL)


def count(x):
    """Returns the tokens of a line by `kvfate tokenize`."""
    return VOCABULARY.count(x["context"] + x["question"], x["raw"], x.get("answer_prefix", ""))


# ---- readers

made = tasks("longbench:hotpotqa", s.path("hotpotqa.jsonl"), repository=LONGBENCH)
s.check("LongBench", [(x["context"] + x["question"], x["n"], x["task"]["answers"], x["task"]["scorer"], x["task"]["length"], x["task"]["item"]) for x in made] == [
    ("Passages:\n" + b.LONG * 6 + "\n\nQuestion: Who built the mill?\nAnswer:", 8, ["Ana Ruiz"], "longbench-f1", "4-8k", "a1"),
    ("Passages:\n" + b.LONG + "\n\nQuestion: When?\nAnswer:", 8, ["1830", "in 1830"], "longbench-f1", "0-4k", "a2")], made)
s.check("the context ends before the question", made[0]["context"] == "Passages:\n" + b.LONG * 6 and not made[0]["raw"])
s.check("ids, tokens", [x["id"] for x in made] == ["longbench-hotpotqa-00000", "longbench-hotpotqa-00001"] and [x["task"]["prompt_tokens"] for x in made] == [count(x) for x in made])
s.check("nothing is truncated without --tokens", not any(x["task"]["truncated"] for x in made))
made = tasks("longbench:trec", s.path("trec.jsonl"), repository=LONGBENCH)
s.check("classes, and no chat template", made[0]["task"]["classes"] == ["Date", "Number"] and made[0]["raw"] is True and made[0]["task"]["scorer"] == "longbench-classes", made)
made = tasks("longbench2", s.path("data.json"), repository=LONGBENCH)
s.check("LongBench v2", made[0]["context"] + made[0]["question"] == "Read.\n<text>\n" + b.LONG.strip() + "\n</text>\nWhich?\n(A) a\n(B) b\n(C) c\n(D) d\nAnswer."
        and made[0]["task"]["answers"] == ["C"] and made[0]["task"]["chance"] == 0.25 and made[0]["task"]["difficulty"] == "hard", made)
for name, file, prompt, answers, more in (
        ("passkey", "passkey", "Info.\n" + b.LONG + "\nWhat is the pass key?\nThe key is", ["71203"], {"scorer": "infinitebench-digits"}),
        ("longbook_choice_eng", "choice", b.LONG + "\nWho?\nA. Al\nB. Bo\nC. Cy\nD. Di\nIt is", ["Bo"], {"letter": "B", "chance": 0.25}),
        ("math_find", "find", "What is the largest number in the following list?\n[3, 88, 17]\nThe largest number of the list is:", [88], {}),
        ("code_run", "run", "func_1 is here.\ndef func_1(x): return x\nCompute func_1(-4).", [-4], {}), ("math_calc", "calc", "Expression: 1 + 2\nValues:", [1, 3], {})):
    made = tasks("infinitebench:" + name, s.path(file + ".jsonl"), repository=INFINITE)
    s.check("InfiniteBench " + name, made[0]["context"] + made[0]["question"] == prompt and made[0]["task"]["answers"] == answers and more.items() <= made[0]["task"].items(), made)
made = tasks("infinitebench:passkey", s.path("passkey.jsonl"), "--family", "gpt4", "--raw", repository=INFINITE)
s.check("another family, raw", made[0]["context"] + made[0]["question"] == b.LONG + "What is the pass key?" and made[0]["raw"] is True, made)
made = tasks("scbench:kv", s.path("kv.jsonl"), repository=SCBENCH)
s.check("SCBench", [(x["context"], x["question"], x["task"]["answers"], x["task"]["turn"]) for x in made] == [("Find it.\n" + b.LONG * 3, 'Key: "k%d"' % i, ["v%d" % i], i + 1) for _ in "12" for i in range(3)], made)
made = tasks("scbench:mf", s.path("mf.jsonl"), repository=SCBENCH)
s.check("SCBench mf", (made[0]["context"], made[0]["question"]) == ("The largest number is: \n" + b.LONG * 3, "What is the largest number? The largest number is: ") and made[0]["task"]["answers"] == [88], made)
with open(s.path("kv.jsonl"), encoding="utf-8") as f:
    turns = json.loads(f.readline())["multi_turns"]
made = tasks("scbench:kv", s.path("kv.jsonl"), "--turns", "-n", "3", repository=SCBENCH)
first = {"role": "user", "content": "Find it.\n" + b.LONG * 3 + "\n\n" + turns[0]["input"]}
chat = [first, *({"role": role, "content": text_} for k in (0, 1) for role, text_ in (("assistant", turns[k]["answer"]), ("user", turns[k + 1]["input"])))]
s.check("turns of a chat", made[0]["context"] + made[0]["question"] == first["content"] and [x["messages"] for x in made[1:]] == [chat[:3], chat], made)
s.check("their tokens", made[2]["task"]["prompt_tokens"] == VOCABULARY.count_chat(chat), made[2]["task"])
made = tasks("scbench:mf", s.path("mf3.jsonl"), "--turns", repository=SCBENCH)
s.check("later questions have the prefix of the last one", [m["content"] for m in made[2]["messages"] if m["role"] == "user"] == [
    "What is the largest number?\n" + b.LONG * 3 + "\nThe largest number is: ", "What is the second number? The smallest number is: ", "What is the second number? The second number is: "], made[2])
s.refused("raw turns", ["tasks", "scbench:kv", s.path("kv.jsonl"), "--repository", SCBENCH, "--turns", "--raw", "-o", s.path("x")], 2, "--raw")
made = tasks("scbench:choice_eng", s.path("scchoice.jsonl"), repository=SCBENCH)
s.check("SCBench choice", made[0]["question"] == "Q: Who? Al Bo Cy Di" and made[0]["task"]["letter"] == "B", made)
made = tasks("scbench:repoqa_and_kv", s.path("mixed.jsonl"), repository=SCBENCH)
s.check("two tasks in one file", [(x["task"]["scorer"], x["n"]) for x in made] == [("scbench-function", 30), ("scbench-contains", 8)]
        and made[0]["task"]["functions"] == [["f", "def f(a): return a + 1"]], made)
b.lines(s.path("gsm.jsonl"), [{"question": "How many?", "answer": "3*4=<<3*4=12>>12\n#### 12"}] * 3)
made = tasks("gsm8k", s.path("gsm.jsonl"), "--shots", "2", "--train", s.path("gsm.jsonl"), "-n", "1", "--answer-tokens", "7", "--scorer", "gsm8k-flexible")
s.check("GSM8K", made[0]["context"] == "Question: How many?\nAnswer: 3*4=<<3*4=12>>12\n#### 12\n\n" * 2 and made[0]["question"] == "Question: How many?\nAnswer:" and len(made) == 1
        and made[0]["n"] == 7 and made[0]["raw"] and made[0]["until"] == ["Question:", "</s>", "<|im_end|>"] and made[0]["task"]["scorer"] == "gsm8k-flexible", made)
b.lines(s.path("math.jsonl"), [{"problem": "Simplify.", "solution": "s", "answer": "\\frac{1}{2}", "subject": "Algebra", "level": 1, "unique_id": "test/x/1.json"}])
made = tasks("math500", s.path("math.jsonl"))
s.check("MATH-500", made[0]["question"].startswith("Simplify.\n\n") and "\\boxed" in made[0]["question"] and made[0]["task"]["answers"] == ["\\frac{1}{2}"] and made[0]["task"]["level"] == "1", made)
b.lines(s.path("aime.jsonl"), [{"Problem": "Find it.", "Answer": 73}])
made = tasks("aime", s.path("aime.jsonl"))
s.check("AIME", made[0]["question"] == "Question: Find it.\nAnswer:" and made[0]["n"] == 32768 and made[0]["task"]["answers"] == ["73"], made)


# ---- truncation: the tiny vocabulary has a token for each letter or so

def ids(text):
    return VOCABULARY.encode(text)


def text(ids):
    return VOCABULARY.decode(ids, False)


whole = "Passages:\n" + b.LONG * 6 + "\n\nQuestion: Who built the mill?\nAnswer:"
made = tasks("longbench:hotpotqa", s.path("hotpotqa.jsonl"), "--tokens", "201", repository=LONGBENCH)
want = text(ids(whole)[:100]) + text(ids(whole)[-100:])
s.check("LongBench keeps both halves", made[0]["context"] + made[0]["question"] == want.lstrip(" ") and made[0]["question"].endswith("mill?\nAnswer:") and made[0]["task"]["truncated"], want, made)
made = tasks("longbench2", s.path("data.json"), "--tokens", "91", repository=LONGBENCH)
full = "Read.\n<text>\n" + b.LONG.strip() + "\n</text>\nWhich?\n(A) a\n(B) b\n(C) c\n(D) d\nAnswer."
whole_ids = ids(full)
s.check("LongBench v2 keeps all of an odd number", made[0]["context"] + made[0]["question"] == text(whole_ids[:45] + whole_ids[-46:]).lstrip(" ") or len(whole_ids) <= 91, made)
made = tasks("scbench:kv", s.path("kv.jsonl"), "--tokens", "1130", repository=SCBENCH)
context = ids("Find it.\n" + b.LONG * 3)
s.check("SCBench truncates the context only", made[0]["context"] == text(context[:50] + context[-50:]).lstrip(" ") and made[0]["question"] == 'Key: "k0"' and made[0]["task"]["truncated"], made[0])
s.refused("no room for the question", ["tasks", "longbench:hotpotqa", s.path("hotpotqa.jsonl"), "--repository", LONGBENCH, "-m", MODEL, "--tokens", "64", "-o", s.path("x")], 1, "64 tokens are too few", "line 1")
s.refused("no room for SCBench", ["tasks", "scbench:kv", s.path("kv.jsonl"), "--repository", SCBENCH, "-m", MODEL, "--tokens", "1030", "-o", s.path("x")], 1, "more --tokens")


# ---- RULER: the recipe

def draw(name, *files, tokens=1500, n=4, **more):
    return tasks("ruler:" + name, *files, "--words", WORDS, "--tokens", str(tokens), "-n", str(n), *(w for k, v in more.items() for w in ("--" + k, str(v))), repository=RULER)


ESSAY, SQUAD, HOTPOT = (s.path(x) for x in ("essays.json", "squad.json", "hotpot.json"))
for name, files, values, asked in (("niah_single_1", (), 1, r"\d{7}"), ("niah_single_2", (ESSAY,), 1, r"\d{7}"), ("niah_single_3", (ESSAY,), 1, r"[0-9a-f-]{36}"), ("niah_multikey_1", (ESSAY,), 1, r"\d{7}"),
                                   ("niah_multikey_2", (), 1, r"\d{7}"), ("niah_multikey_3", (), 1, r"[0-9a-f-]{36}"), ("niah_multivalue", (ESSAY,), 4, r"\d{7}"), ("niah_multiquery", (ESSAY,), 4, r"\d{7}")):
    made = draw(name, *files, tokens=9000 if files else 1500)
    s.check(name + ": length", all(x["task"]["prompt_tokens"] == count(x) and x["task"]["prompt_tokens"] + x["n"] <= (9000 if files else 1500) for x in made), [x["task"]["prompt_tokens"] for x in made])
    s.check(name + ": values", all(len(x["task"]["answers"]) == values and all(re.fullmatch(asked, a) and x["context"].count(" is: %s." % a) == 1 for a in x["task"]["answers"]) for x in made), made[0]["task"])
    plural = "numbers" if "d{7}" in asked else "uuids"
    s.check(name + ": wording", all(x["context"].startswith("A %s is in this text.\n" % plural[:-1] if values == 1 else "Some %s are in this text.\n" % plural) for x in made), made[0]["context"][:40])
    s.check(name + ": the question names the keys", all(all(re.search("for (%s) is: %s" % ("|".join(map(re.escape, re.split(", and |, ", re.search("for (.*)\\?", x["question"])[1]))), a), x["context"]) for a in x["task"]["answers"])
                                                        for x in made), made[0]["question"])
    s.check(name + ": samples differ", len({x["task"]["answers"][0] for x in made}) == len(made))
    s.check(name + ": keys", all(len(re.findall("The %s for" % plural, x["context"])) == {"niah_multikey_1": 4, "niah_multivalue": 4, "niah_multiquery": 4}.get(name, 1) or name in ("niah_multikey_2", "niah_multikey_3") for x in made))
first = draw("niah_single_1")
s.check("equal seeds, equal samples", first == draw("niah_single_1", seed=42) and first != draw("niah_single_1", seed=43))
step = len("\nGrass grows. Rain falls.")
s.check("the largest haystack", 1500 - first[0]["n"] - first[0]["task"]["prompt_tokens"] < step, first[0]["task"])

made = draw("vt", tokens=2500)
for x in made:
    example, _, text_ = x["context"].rpartition("Track names.")
    names = x["task"]["answers"]
    value = re.search(r"value (\d{5})\?", x["question"])[1]
    s.check("a chain", len(set(names)) == 5 and all(re.fullmatch("[A-Z]{5}", a) for a in names) and "VAR %s = %s" % (names[0], value) in text_
            and all("VAR %s = VAR %s" % (c, a) in text_ for a, c in zip(names, names[1:])), x["task"])
    s.check("the order of the chain", sorted(names, key=lambda a: text_.index("VAR %s = " % a)) == names)
    s.check("a solved example", re.search(r"have the value (\d{5})\?.*: +([A-Z]{3} ){4}[A-Z]{3}\n\n$", example, re.S) is not None, example[-200:])
    s.check("length of vt", count(x) + x["n"] <= 2500 and x["n"] == 30)

for tokens, common, rare in ((3000, 6, 1), (9000, 30, 3)):
    for x in draw("cwe", tokens=tokens, n=2):
        listed = collections.Counter(re.findall(r"\d+\. (\S+)", x["context"].rpartition("A list.\n")[2]))
        s.check("counts of words at %d" % tokens, sorted(w for w, n in listed.items() if n == common) == sorted(x["task"]["answers"]) and len(x["task"]["answers"]) == 10
                and set(listed.values()) <= {common, rare} and count(x) + x["n"] <= tokens, listed.most_common(12))
for x in draw("fwe", tokens=3000, n=2):
    words = x["context"].partition("A code. ")[2].split()
    seen = [n for _, n in collections.Counter(words).most_common()]
    n = next(n for n in range(1, 4000) if int(n / (3.141592653589793 ** 2 / 6)) == seen[0])
    s.check("counts of codes", any([int(k * r ** -2 / (3.141592653589793 ** 2 / 6)) for r in range(1, 5)] == seen[:4] for k in range(n, n + 3)) and collections.Counter(words).most_common()[0][0] == "..."
            and [w for w, _ in collections.Counter(words).most_common(4)][1:] == x["task"]["answers"] and count(x) + x["n"] <= 3000, seen[:5])

for name, file, gold in (("qa_1", SQUAD, 1), ("qa_2", HOTPOT, 10)):
    made = draw(name, file, tokens=1100, n=6)
    with open(file, encoding="utf-8") as f:
        data = json.load(f)
    if gold == 1:
        asked = [(p["context"], q) for d in data["data"] for p in d["paragraphs"] for q in p["qas"] if not q["is_impossible"]]
        want = [([c], q["question"], [a["text"] for a in q["answers"]]) for c, q in asked]
    else:
        want = [(["%s\n%s" % (t, "".join(p)) for t, p in d["context"]], d["question"], [d["answer"]]) for d in data]
    for x, (documents, question, answers) in zip(made, want):
        s.check(name + " has its documents", all(d in x["context"] for d in documents) and x["question"].endswith(question) and x["task"]["answers"] == answers and x["task"]["scorer"] == "ruler-any", x)
        s.check(name + " is numbered", [int(i) for i in re.findall(r"Document (\d+):", x["context"])] == list(range(1, 1 + x["context"].count("Document "))) and count(x) + x["n"] <= 1100)

# ---- bad input

O = ["-m", MODEL, "-o", s.path("bad.jsonl")]
for what, argv, code, words in (
        ("an unknown benchmark", ["longbnch"], 2, ["did you mean longbench?"]), ("an unknown task", ["longbench:hotpot"], 2, ["did you mean hotpotqa?"]), ("no task", ["ruler"], 2, ["ruler:task", "niah_single_1"]),
        ("a task too many", ["gsm8k:x"], 2, ["no tasks"]), ("no repository", ["longbench:hotpotqa", s.path("hotpotqa.jsonl")], 2, ["--repository"]), ("no data", ["gsm8k"], 2, ["data files"]),
        ("a repository of another", ["longbench:hotpotqa", s.path("hotpotqa.jsonl"), "--repository", RULER], 1, ["dataset2prompt.json"]), ("a missing file", ["gsm8k", s.path("none.jsonl")], 1, ["none.jsonl", "cannot read"]),
        ("an option of another", ["gsm8k", s.path("gsm.jsonl"), "--family", "gpt4"], 2, ["--family", "infinitebench"]), ("a seed of another", ["gsm8k", s.path("gsm.jsonl"), "--seed", "3"], 2, ["--seed"]),
        ("a scorer of another", ["gsm8k", s.path("gsm.jsonl"), "--scorer", "aime-integer"], 2, ["gsm8k-strict"]), ("shots without a file", ["gsm8k", s.path("gsm.jsonl"), "--shots", "2"], 2, ["--train"]),
        ("too few rows", ["gsm8k", s.path("gsm.jsonl"), "-n", "9"], 1, ["3 prompts", "9 are asked"]), ("another data set", ["longbench:hotpotqa", s.path("trec.jsonl"), "--repository", LONGBENCH], 1, ["trec", "line 1"]),
        ("a file of RULER too many", ["ruler:vt", ESSAY, "--repository", RULER, "--words", WORDS], 2, ["no file"]), ("a file of RULER too few", ["ruler:qa_1", "--repository", RULER, "--words", WORDS], 2, ["squad"]),
        ("too short for RULER", ["ruler:niah_single_2", ESSAY, "--repository", RULER, "--words", WORDS, "--tokens", "200"], 1, ["no sample fits", "--tokens"]),
        ("no word lists", ["ruler:cwe", "--repository", RULER, "--words", s.path("nowhere")], 1, ["nounlist.txt", "wonderwords"]), ("HotpotQA is no SQuAD", ["ruler:qa_1", HOTPOT, "--repository", RULER, "--words", WORDS], 1, ["squad 2.0"])):
    s.refused(what, ["tasks", *argv, *O], code, *words)
s.refused("no output", ["tasks", "gsm8k", s.path("gsm.jsonl")], 2, "-o")
for what, rows, words in (("no JSON", "{", ["line 1", "no json"]), ("no object", "[]", ["object"]), ("no field", '{"question": "x"}', ["answer", "missing"]), ("no number", '{"question": "x", "answer": "y"}', ["####"]),
                          ("a zero", '{"question": "x\\u0000", "answer": "#### 1"}', ["zero"]), ("half a character", '{"question": "x\\ud800", "answer": "#### 1"}', ["character"]), ("nothing", "", ["0 prompts"])):
    s.refused("GSM8K with " + what, ["tasks", "gsm8k", s.file("bad.txt", rows.encode()), *O], 1, *words)
s.refused("no text", ["tasks", "gsm8k", s.file("bad.txt", b"\xff\xfe"), *O], 1, "utf-8")
for what, row, words in (("no options", {"answer": "Bo", "input": "Q", "context": "c"}, ["options"]), ("an answer that is no option", {"answer": "X", "options": list("abcd"), "input": "Q", "context": "c"}, ["one of four"])):
    s.refused("a choice with " + what, ["tasks", "infinitebench:longbook_choice_eng", b.lines(s.path("bad.jsonl.txt"), [row]), "--repository", INFINITE, *O], 1, *words)
b.write(s.path("odd/src/prompt.py"), "yarn_mistral_templates = f()\n")
s.refused("a template that is no literal", ["tasks", "infinitebench:passkey", s.path("passkey.jsonl"), "--repository", s.path("odd"), *O], 1, "yarn_mistral_templates", "not supported")
VOCABULARY.close()
s.check("a failure writes nothing", not os.path.exists(s.path("bad.jsonl")))
s.finish()
