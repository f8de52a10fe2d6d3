"""`kvfate quickstart`: runs one prompt under several methods and writes one page that shows which tokens each method kept and how the model
answered.

The page is a folder with index.html, the figure, the table, the traces and the prompt.  The program makes every number; this module needs
Python's own library only."""
import base64
import csv
import html
import os
import random
import re
import shlex
import sys
import warnings

from . import files, program
from .commands import Usage
from .errors import Error
from .scorers import wilson

MARK = '<meta name="generator" content="kvfate quickstart">'
TOKENS, DEPTH = 400, 0.4  # of the built-in prompts; the manual page states them
REPLICATES = 2000  # of the bootstrap
COLUMNS = ("method", "budget", "prompts", "kept", "kept_low", "kept_high", "correct", "right", "right_low", "right_high")
STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1f; background: #fff; }
figure { margin: 1rem 0; overflow-x: auto; } figure img { width: 100%; min-width: 40rem; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
pre { background: #f3f3f5; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere; } .wide { overflow-x: auto; }"""


def _quiet(*words):
    """Runs the program without its notes.  Answers of different methods differ here by intention."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program.run(*words)


def _table(path):
    """Returns the rows of a TSV table as dictionaries of texts."""
    with open(path, encoding="utf-8", newline="") as f:
        return list(csv.DictReader((line for line in f if not line.startswith("# ")), delimiter="\t", quoting=csv.QUOTE_NONE))


class Job:
    """The options of a call, and the commands that it has run."""

    def __init__(self, request, at):
        self.request, self.at, self.commands = request, at, []
        self.model = ["-m", request.model] if request.model else []
        self.threads = ["-t", str(request.threads)] if request.threads else []
        self.methods = [m.strip() for m in request.methods.split(",")]
        if not all(self.methods) or len(set(self.methods)) < len(self.methods):
            raise Usage("--methods: '%s' needs different methods, such as full,snapkv,h2o" % request.methods)

    def call(self, *words):
        """Runs a command in the folder of the page and notes it."""
        self.commands.append(" ".join(["kvfate", *map(shlex.quote, words)]))
        return _quiet(*[os.path.join(self.at, w) if w in self.names else w for w in words])

    names = ()  # words that are names of files in the folder

    def write_prompt(self, text, seed):
        """Writes the prompt and returns its files: prompt.txt, and prompt.json for a built-in prompt."""
        self.names = ("prompt", "prompt.txt", "prompt.json")
        if text is not None:
            files.write(os.path.join(self.at, "prompt.txt"), text)
            return None
        self.call("tasks", "needle", "--tokens", str(TOKENS), "--depth", str(DEPTH), "-s", str(seed), *self.model, "-o", "prompt")
        return "prompt.json"

    def record(self, spans, more=()):
        """Records a trace for each method, with more options of `kvfate run`, and returns their names."""
        traces = []
        for i, method in enumerate(self.methods):
            trace = "%d-%s.kvf" % (i + 1, re.sub(r"[^\w.-]", "-", method))
            self.names += (trace,)
            budget = [] if method == "full" else ["-B", self.request.budget]
            self.call("run", *self.model, "-f", "prompt.txt", *(["--spans", spans] if spans else []), "-n", str(self.request.predict), "--method",
                      method, *budget, *more, *self.threads, "-q", "-o", trace)
            traces.append(trace)
        return traces

    def draw(self, traces, spans, outputs=("answer.tsv", "answer.svg", "answer.pdf")):
        """Writes the table and the figure, and returns the results of each trace."""
        self.names += outputs
        needle = ["--needle", "needle" if spans else "none", "--points", "2"]
        for name in outputs:
            self.call("fates", *traces, *needle, *([] if name.endswith(".tsv") else ["--figure", "fates-answer"]), "-o", name)
        return results(_table(os.path.join(self.at, "answer.tsv")))


def results(rows):
    """Returns for each trace its label, budget, answer, right ("1", "0" or "-1") and the mean fraction of heads that cache the needle at the
    first step of the answer (None without a needle)."""
    found = {}
    for row in rows:
        trace = found.setdefault(row.get("trace") or row.get("method") or "run", {**row, "held": []})
        if row["step"] == trace["step"] and row["needle"] == "1":
            trace["held"].append(float(row["held"]))
    return [{"label": label, "budget": x.get("budget", ""), "answer": x["answer"], "right": x["right"],
             "kept": sum(x["held"]) / len(x["held"]) if x["held"] else None} for label, x in found.items()]


# ---- several prompts

def bootstrap(values, seed=0):
    """Returns the 2.5 % and 97.5 % quantiles of the means of REPLICATES samples with replacement."""
    draw = random.Random(seed)
    means = sorted(sum(draw.choices(values, k=len(values))) / len(values) for _ in range(REPLICATES))
    return means[int(.025 * REPLICATES)], means[int(.975 * REPLICATES) - 1]


def summarise(method, budget, runs):
    """Returns the row of a method over its prompts, in the order of COLUMNS."""
    kept, right = [x["kept"] for x in runs], sum(x["right"] == "1" for x in runs)
    low, high = bootstrap(kept)
    return (method, budget, len(runs), sum(kept) / len(kept), low, high, right, right / len(runs), *wilson(right, len(runs)))


def many(job, count):
    """Runs the built-in prompts of seeds 0 to count - 1, and returns the rows of prompts.tsv, which it writes."""
    runs = [[] for _ in job.methods]
    for seed in range(count):
        with files.folder(os.path.join(job.at, "prompt-%d" % seed)) as at:
            one = Job(job.request, at)
            spans = one.write_prompt(None, seed)
            for mine, x in zip(runs, one.draw(one.record(spans, ("--probes", "evict")), spans, ("answer.tsv",))):
                mine.append(x)
        print("prompt %d of %d: %s" % (seed + 1, count, ", ".join("%s %s" % (m, "correct" if r[-1]["right"] == "1" else "wrong")
                                                                  for m, r in zip(job.methods, runs))), flush=True)
    rows = [summarise(m, "all" if m == "full" else job.request.budget, r) for m, r in zip(job.methods, runs)]
    text = "# table: prompts\n# interval: 95 %%, Wilson for right, bootstrap over prompts (%d replicates) for kept\n%s\n" % (REPLICATES, "\t".join(COLUMNS))
    files.write(os.path.join(job.at, "prompts.tsv"), text + "".join("\t".join(str(v) for v in row) + "\n" for row in rows))
    return rows


# ---- the page

def _row(cells, tag="td"):
    return "<tr>%s</tr>" % "".join("<%s>%s</%s>" % (tag, html.escape(str(c)), tag) for c in cells)


def _percent(v, low=None, high=None):
    return "%.0f %%" % (100 * v) + ("" if low is None else " (%.0f to %.0f)" % (100 * low, 100 * high))


def _many_section(rows):
    if not rows:
        return ""
    body = "\n".join(_row((m, b, n, _percent(k, kl, kh), "%d of %d" % (c, n), _percent(r, rl, rh))) for m, b, n, k, kl, kh, c, r, rl, rh in rows)
    return """<h2>%d prompts</h2>
<p>The same over the built-in prompts of seeds 0 to %d, with 95 %% confidence intervals. <a href="prompts.tsv">TSV</a>.</p>
<div class="wide"><table><thead>%s</thead><tbody>
%s
</tbody></table></div>
""" % (rows[0][2], rows[0][2] - 1, _row(("method", "budget", "prompts", "heads that cache the needle", "correct", "correct answers"), "th"), body)


def write_page(job, found, rows, text):
    """Writes index.html."""
    with open(os.path.join(job.at, "answer.svg"), encoding="utf-8") as f:
        picture = f.read()
    picture = picture[picture.index("<svg"):]
    words = {"1": "correct", "0": "wrong", "-1": "not judged"}
    alt = "; ".join("%s: %s" % (x["label"], words[x["right"]]) for x in found)
    body = "\n".join(_row((x["label"], words[x["right"]], "" if x["kept"] is None else _percent(x["kept"]), x["answer"])) for x in found)
    files.write(os.path.join(job.at, "index.html"), """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">%s
<title>kvfate quickstart</title><style>%s</style></head><body>
<h1>Which tokens did the cache keep, and did the model answer?</h1>
<figure><img alt="%s" src="data:image/svg+xml;base64,%s"></figure>
<p>Each row is one run of the same prompt. A bar is the fraction of heads that still cache a token when the answer begins. This figure represents 1 prompt.
For a paper: <a href="answer.pdf">PDF</a>, <a href="answer.svg">SVG</a>, <a href="answer.tsv">table</a>.</p>
<div class="wide"><table><thead>%s</thead><tbody>
%s
</tbody></table></div>
%s<h2>The prompt</h2>
<pre>%s</pre>
<h2>The commands</h2>
<p>Run these lines in an empty folder to make the figure again.</p>
<pre>%s</pre>
</body></html>
""" % (MARK, STYLE, html.escape(alt), base64.b64encode(picture.encode()).decode(), _row(("run", "answer is", "heads that cache the needle", "answer"), "th"), body, _many_section(rows),
       html.escape(text), html.escape("\n".join(job.commands))))


def _may_replace(place):
    """Returns True for an empty folder and for an older page of quickstart, and raises Error for another folder."""
    try:
        with open(os.path.join(place, "index.html"), encoding="utf-8", errors="replace") as f:
            ours = MARK in f.read(4096)
    except OSError:
        ours = False
    if not ours and os.listdir(place):
        raise Error("%s holds other files; choose another folder with -o" % place)
    return True


def has_display(environment=os.environ, platform=sys.platform):
    """Returns whether a browser could open a window."""
    return platform == "darwin" or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def run(request, operands):
    if operands and request.file:
        raise Usage("PROMPT and --file are given; give one of them")
    if operands and os.path.isfile(operands[0]):
        raise Usage("'%s' is a file, not a prompt; read it with -f %s" % (operands[0], shlex.quote(operands[0])))
    text = operands[0] if operands else None
    if request.file:
        try:
            with open(request.file, encoding="utf-8") as f:
                text = f.read()
        except (OSError, UnicodeError) as e:
            raise Error("%s: cannot read the prompt: %s" % (request.file, getattr(e, "strerror", None) or "it is not UTF-8")) from None
    if text is not None and request.prompts > 1:
        raise Usage("--prompts is for the built-in prompts, which have known answers; omit the prompt")
    if text is not None and not text.strip():
        raise Usage("the prompt is empty")
    job = Job(request, None)
    with files.folder(request.output, _may_replace) as at:
        job.at = at
        spans = job.write_prompt(text, 0)
        found = job.draw(job.record(spans), spans)
        rows = many(job, request.prompts) if request.prompts > 1 else []
        with open(os.path.join(at, "prompt.txt"), encoding="utf-8") as f:
            write_page(job, found, rows, f.read())
    for x in found:
        print("%-24s %-10s %s" % (x["label"], {"1": "correct", "0": "wrong"}.get(x["right"], ""), x["answer"]))
    page = os.path.abspath(os.path.join(request.output, "index.html"))
    print("page: %s" % page)
    if has_display() and not request.no_open:
        import webbrowser
        webbrowser.open("file://" + page)
