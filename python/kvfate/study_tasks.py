"""Tasks of a study whose answers are generated, or chosen by log-likelihood: mathematics, choices and benchmarks (docs/guide/study.md).

What the model said is kept line by line in a file of states as it is said, so that the same call goes on where one was stopped, and is scored when
all of it is there: the same answers give the same bytes, whoever made them."""
import hashlib
import json
import math
import os
import random
import subprocess
import sys

from . import files, program, scorers, scoring
from .budgets import percent
from .errors import Error, regular
from .study_cost import file_of

KINDS = ("mathematics", "choices", "benchmark")
MARK = b', "checksum": "'
MOST_BYTES, MOST_CHOICES = 1 << 28, 26
ASK = "\nThink step by step. End with a line of #### and the number alone."


def _lines(path):
    regular(path)
    if os.path.getsize(path) > MOST_BYTES:
        raise Error("%s is over %d bytes" % (path, MOST_BYTES))
    with open(path, encoding="utf-8") as f:
        try:
            return [(i, json.loads(line)) for i, line in enumerate(f, 1) if line.strip()]
        except (ValueError, RecursionError) as e:
            raise Error("%s: no JSON lines: %s" % (path, e)) from None


def _item(kind, where, line):
    """(question, choices or None, the solution or the index of the right choice) of a line of data."""
    if any("\ud800" <= c <= "\udfff" for c in json.dumps(line, ensure_ascii=False)):
        raise Error("%s: a text holds half of a character" % where)
    question, answer = (line.get("question"), line.get("answer")) if isinstance(line, dict) else (None, None)
    if not isinstance(question, str) or not question.strip():
        raise Error('%s: a task needs "question", a text' % where)
    if kind == "mathematics":
        if not isinstance(answer, str) or scorers.final_number(answer) is None:
            raise Error('%s: "answer" must be a text that ends with a number, as GSM8K has it' % where)
        return question, None, answer
    choices = line.get("choices")
    if not isinstance(choices, list) or not 2 <= len(choices) <= MOST_CHOICES or not all(isinstance(c, str) and c.strip() for c in choices):
        raise Error('%s: "choices" must be a list of 2 to %d texts' % (where, MOST_CHOICES))
    if isinstance(answer, str) and len(answer) == 1:
        answer = ord(answer) - ord("A")
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise Error('%s: "answer" must be the number of a choice, from 0, or its letter, from A' % where)
    return question, choices, answer


def items(job):
    """The tasks of a job: drawn by its seed from all of the data; seed 0 takes the first ones."""
    x = job.text
    if x.kind == "benchmark":
        return random.Random(job.seed).sample(scoring.lines(tuple(x.values["data"])), x.count) if job.seed else x.lines
    found = [_item(x.kind, "%s: line %d" % (path, i), line) for path in x.values["data"] for i, line in _lines(path)]
    if len(found) < x.count:
        raise Error("the data of %s have %d tasks, and %d are asked for" % (x.name, len(found), x.count))
    return random.Random(job.seed).sample(found, x.count) if job.seed else found[:x.count]


def cells(plan):
    """(method, budget) of each row: once where the method has none."""
    none = {m["name"] for m in json.loads(program.run("methods", "--json")) if m["budget"] == 0}
    rows = []
    for method in plan.methods:
        for budget in (0,) if method.split(":")[0] in none else plan.budgets:
            rows.append((method, budget))
    return rows


def _requests(job, found):
    """{id: a line of `kvfate generate --jsonl`}."""
    x, lines = job.text.values, {}
    if job.text.kind == "benchmark":
        return {"%d-0" % i: {k: v for k, v in line.items() if k not in ("id", "task")} for i, line in enumerate(found)}
    for i, (question, choices, _) in enumerate(found):
        if choices:
            for k, choice in enumerate(choices):
                lines["%d-%d" % (i, k)] = {"text": "Question: %s\nAnswer:" % question.strip(), "continuation": " " + choice.strip()}
        else:
            for k in range(x["samples"]):
                lines["%d-%d" % (i, k)] = {"prompt": question + (ASK if x["instruction"] is None else x["instruction"]), "n": x["most_tokens"], "seed": job.seed * 1000003 + k}
    return lines


def _options(job, plan):
    words = ["-m", job.model.path] if job.model.path else []
    words += ["-t", str(plan.threads)] if plan.threads else []
    words += plan.inputs(plan.methods) + plan.precision
    return words + (["--temp", repr(job.text.values["temperature"])] if job.text.kind == "mathematics" else [])


def _budget(line):
    """The budget of an answer as the study file has it: a fraction is the same for prompts of all lengths, its entries are not."""
    return line["budget"] if "budget_percent" not in line else percent("%.6f%%" % line["budget_percent"])


class State:
    """What was said, in a file: a first line that names the job, then one line for each answer, with a checksum of both.  A line that a kill cut
    off is dropped."""

    def __init__(self, path, name):
        self.said, self.path, self.name = {}, path, name.encode()
        self.file = files.Lines(path)
        try:
            self._take(self.file.lines)
        except BaseException:
            self.file.close()
            raise

    def _take(self, lines):
        if len(lines) > 1 and lines[0] != self.name:
            raise Error("%s holds answers of other tasks, another model or other options, or its first line is damaged; move it away" % self.path)
        if len(lines) > 1 and MARK not in lines[1]:
            raise Error("%s: line 2 has no checksum: an older kvfate wrote it, or it is damaged; move the file away, and the answers are made again" % self.path)
        for number, line in enumerate(lines[1:], 2):
            if line != self._signed(line.rpartition(MARK)[0]):
                raise Error("%s: line %d is damaged (its checksum differs); delete this line, and its answer is made again" % (self.path, number))
            x = json.loads(line)
            self.said[x["method"], _budget(x), x["id"]] = x
        if lines != [self.name] and not self.said:  # nothing was said yet
            self.file.clear()
            self.file.add(self.name)

    @classmethod
    def peek(cls, path, name):
        """Returns the answers in a file that another process may be writing; {} if there is no file."""
        state = cls.__new__(cls)
        state.said, state.path, state.name = {}, path, name.encode()
        try:
            with open(path, "rb") as f:
                lines = f.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return {}
        if len(lines) > 1:
            state._take(lines)
        return state.said

    def _signed(self, line):
        """A line, which lacks its last brace, with the checksum of the first line and of itself."""
        return line + MARK + files.checksum_text(files.checksum(line, files.checksum(self.name))).encode() + b'"}'

    def add(self, line):
        x = {"method": line["method"], "budget": line["budget"], **line}
        if (x["method"], _budget(x), x["id"]) in self.said:
            return
        x.pop("checksum", None)  # of a line of another file
        self.said[x["method"], _budget(x), x["id"]] = x
        self.file.add(self._signed(json.dumps(x)[:-1].encode()))


def _generate(words, requests, ranks, add):
    """Runs the program on lines, and gives each answer to add as it comes."""
    with files.scratch("lines.jsonl", "".join(json.dumps({"id": k, **line}) + "\n" for k, line in requests.items())) as path:
        before = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        p = subprocess.Popen([*before, program.find(), "generate", "--jsonl", path, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for line in p.stdout:
            add(json.loads(line.decode("utf-8", "replace")))
        p.wait()
    if p.returncode > 128 or p.returncode < 0:
        raise KeyboardInterrupt
    if p.returncode:
        raise Error("the command above failed, and the study stops; the same call goes on from here")


def _print(path):
    """What tells one model from another: of each file its size, its first MiB and its last."""
    seen = hashlib.sha256()
    for name in sorted(os.path.join(path, f) for f in os.listdir(path)) if os.path.isdir(path) else [path]:
        if os.path.isfile(name):
            with open(name, "rb") as f:
                size = f.seek(0, os.SEEK_END)
                for at in (0, max(0, size - (1 << 20))):
                    f.seek(at)
                    seen.update(b"%d " % size + f.read(1 << 20))
    return seen.hexdigest()


def _name(job, plan, found):
    """The first line of a state: all that the answers depend on, but for methods and budgets."""
    known = {"model": _print(file_of(job.model)), "kind": job.text.kind, "seed": job.seed, "requests": hashlib.sha256(json.dumps(_requests(job, found)).encode()).hexdigest(),
             "options": _options(job, plan._replace(threads=None))[2 if job.model.path else 0:]}
    return "# kvfate tasks: " + json.dumps(known)


def _right(job, found, said, cell, marked=False):
    """Returns for each task how many of its samples are right; for a benchmark its score.  marked: numbers count only if the answer marks them."""
    x, rights = job.text.values, []
    if job.text.kind == "benchmark":
        return [scoring.of(said[cell + ("%d-0" % i,)], line["task"]) for i, line in enumerate(found)]
    for i, (_, choices, answer) in enumerate(found):
        if choices:
            told = [said[cell + ("%d-%d" % (i, k),)] for k in range(len(choices))]
            scores = [(t["logprob"], t["tokens"], len((" " + c.strip()).encode())) for t, c in zip(told, choices)]
            rights.append(int(scorers.likeliest(scores, x["length"]) == answer))
        else:
            rights.append(sum(scorers.same_number(said[cell + ("%d-%d" % (i, k),)]["text"], answer, marked) for k in range(x["samples"])))
    return rights


def held(job, found, said, cell):
    """Returns the mean over right answers of entries in the cache at the end over tokens fed: the token retention ratio of G-KV's figure 6.  Answers
    of a benchmark count if their score is above 0.  NaN if no answer counts."""
    right = []
    if job.text.kind == "benchmark":
        scores = zip(_right(job, found, said, cell), (said[cell + ("%d-0" % i,)] for i in range(len(found))))
        right = [x["entries"] / max(1, x["prompt_tokens"] + x["tokens"] - 1) for value, x in scores if value > 0 and "entries" in x]
        return sum(right) / len(right) if right else math.nan
    for i, (_, choices, answer) in enumerate(found):
        for k in range(0 if choices else job.text.values["samples"]):
            x = said[cell + ("%d-%d" % (i, k),)]
            if scorers.same_number(x["text"], answer) and "entries" in x:
                right.append(x["entries"] / max(1, x["prompt_tokens"] + x["tokens"] - 1))
    return sum(right) / len(right) if right else math.nan


def cut(said):
    """How many of these answers ended because `most_tokens` or the context was reached; NaN where that is not known: nothing was generated, or the
    answers were kept by a version that did not tell."""
    stops = [x.get("stop") for x in said]
    return math.nan if None in stops else sum(s in ("length", "context") for s in stops)


def floor(found):
    """Returns the score of guessing: a choice drawn at random, or the number that is right most often; for a benchmark the mean of "chance"."""
    if isinstance(found[0], dict):
        return sum(line["task"].get("chance", 0.0) for line in found) / len(found)
    if found[0][1]:
        return scorers.chance_of_choices([len(choices) for _, choices, _ in found])
    return scorers.constant_answer([scorers.final_number(answer) for _, _, answer in found])


def rows(job, plan, found, said):
    """(metadata, names of columns, rows) of the table of a job.  With several samples, `right` is their mean, pass@1, and a task counts as right
    in comparisons when its first sample is."""
    n = job.text.values.get("samples", 1)
    ks = [1 << e for e in range(n.bit_length())] if n > 1 else []
    least, done = floor(found), {cell: _right(job, found, said, cell) for cell in cells(plan)}
    full = next((c for c in done if c[0] == "full"), None)
    out, percents, marks = [], [], job.text.kind == "mathematics"
    for cell, rights in done.items():
        share = sum(rights) / (n * len(found))
        low, high = scorers.wilson(share * len(found), len(found))
        above = below = p = math.nan
        if full and cell != full and n == 1:
            above, below = (sum(a > b for a, b in zip(*pair)) for pair in ((rights, done[full]), (done[full], rights)))
            p = scorers.mcnemar(above, below)
        answers = [x for k, x in said.items() if k[:2] == cell]
        tokens = [x["tokens"] for x in answers]
        kept = held(job, found, said, cell)
        fraction = isinstance(cell[1], str)
        budget = sum(x["budget"] for x in answers) / len(answers) if fraction else cell[1]
        percents.append(float(cell[1][:-1]) if fraction else math.nan)
        out.append([cell[0], budget, len(found), share, low, high, least, above, below, p, sum(tokens) / len(tokens), kept, len(answers), cut(answers)]
                   + ([sum(_right(job, found, said, cell, True)) / (n * len(found))] if marks else []) + [sum(scorers.pass_at_k(n, r, k) for r in rights) / len(rights) for k in ks])
    if full:
        lowest = scorers.wilson(sum(done[full]) / n, len(found))[0]
        ranking = "by tasks that the full cache can do" if lowest > least else "none: the full cache is at the floor of these tasks"
    else:
        ranking = "not known: there is no full cache to tell the floor by"
    names = ["method", "budget", "tasks", "right", "right_low", "right_high", "floor", "above", "below", "p_full", "answer_tokens", "kept", "answers", "answers_cut"] + ["marked"] * marks
    if any(p == p for p in percents):
        names.insert(2, "budget_percent")
        for x, p in zip(out, percents):
            x.insert(2, p)
    cuts = [(x[names.index("answers")], x[names.index("answers_cut")]) for x in out]
    total = sum(c for _, c in cuts if c == c)
    told = [("truncated", "%d of %d answers reached the length limit" % (total, sum(n for n, c in cuts if c == c)))] if total else []
    return [("model", job.model.name), ("text", job.text.name), ("kind", job.text.kind), ("interval", "95 %, Wilson"), ("ranking", ranking), *told, *_benchmark(job, found)], \
        names + ["pass_%d" % k for k in ks], out


def _benchmark(job, found):
    """Returns the metadata of a benchmark: its name, its scorers, and how many prompts were truncated."""
    if job.text.kind != "benchmark":
        return []
    tasks = [line["task"] for line in found]
    cut_prompts = sum(bool(t.get("truncated")) for t in tasks)
    name = ":".join(filter(None, (str(tasks[0].get("benchmark", "")), str(tasks[0].get("name", "")))))
    return [("benchmark", name), ("scorer", ", ".join(sorted({t["scorer"] for t in tasks}))),
            ("prompts", "%d of %d prompts lost their middle; %d to %d tokens" % (cut_prompts, len(tasks), *(f(t.get("prompt_tokens", 0) for t in tasks) for f in (min, max))))]


def _shown(value):
    return repr(value) if isinstance(value, float) else str(value)


def write(path, job, plan, found, said, of=0):
    """Writes the table of a job.  of: number of tasks of the job, if not all of them are answered yet."""
    meta, names, body = rows(job, plan, found, said)
    if of > len(found):
        meta.append(("so_far", "%d of %d tasks are answered by all methods" % (len(found), of)))
    head = "# table: tasks\n" + "".join("# %s: %s\n" % x for x in meta) + "\t".join(names) + "\n"
    files.write(path, files.sealed(head + "".join("\t".join(map(_shown, r)) + "\n" for r in body)))
    for key, value in meta:
        if key == "truncated":
            limit = "" if job.text.kind == "benchmark" else " (most_tokens = %d)" % job.text.values["most_tokens"]
            print("note: %s: %s%s" % (job.name, value, limit), file=sys.stderr)


def write_so_far(job, plan, at):
    """Writes the table of the tasks that all methods and budgets have answered; returns how many there are, and writes no table if there are none."""
    found = items(job)
    said, ids = State.peek(at(".state"), _name(job, plan, found)), {}
    for k in _requests(job, found):
        ids.setdefault(int(k.split("-")[0]), []).append(k)
    done = [i for i in ids if all(cell + (k,) in said for cell in cells(plan) for k in ids[i])]
    if done:
        mine = {cell + ("%d-%s" % (new, k.split("-")[1]),): said[cell + (k,)] for new, i in enumerate(done) for k in ids[i] for cell in cells(plan)}
        write(at(".tsv"), job, plan, [found[i] for i in done], mine, len(found))
    return len(done)


def run(job, plan, at, ranks=1, shard=None):
    """Makes what is missing of the answers of a job; its table when nothing is (at: the name of a file of the job, by its ending)."""
    found = items(job)
    requests, name = _requests(job, found), _name(job, plan, found)
    part, parts = map(int, shard.split("/")) if shard else (1, 1)
    state = State(at(".part%d-%d.state" % (part, parts) if shard else ".state"), name)
    folder, start = os.path.split(at(".part"))
    others = [] if shard else sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.startswith(start) and f.endswith(".state"))
    for path in others:
        part_of = State(path, name)
        part_of.file.close()
        for x in part_of.said.values():
            state.add(x)
        os.remove(path)
    mine = [k for k in requests if int(k.split("-")[0]) % parts == part - 1]
    missing = [(m, b, k) for m, b in cells(plan) for k in mine if (m, b, k) not in state.said]
    if missing:
        methods, budgets, left = ([x for x in known if x in {cell[i] for cell in missing}] for i, known in enumerate((plan.methods, [0, *plan.budgets], mine)))
        limited = ",".join(str(b) for b in budgets if b)
        words = ["--methods", ",".join(methods), *(["--budgets", limited] if limited else []), *_options(job, plan)]
        _generate(words, {k: requests[k] for k in left}, ranks, state.add)
    state.file.close()
    if not shard:
        write(at(".tsv"), job, plan, found, state.said)
