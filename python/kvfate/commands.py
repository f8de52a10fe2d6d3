"""The commands that live in this package, which the program hands to it: one table, from which Meson also makes what the program knows of them
(cli/package_commands.py), and with that the overview, `-h` and the manual pages.

To add a command NAME: its entry in COMMANDS below; a function run(request, operands) in the module that the entry names, which gets an object
with a member for each option, raises kvfate.Error for what fails, Usage for a wrong call, and may return an exit status; a line X(NAME) in
cli/commands.list where the overview shall show it; docs/man/kvfate-NAME.1; a line in tests/cli/test_stories.py.

This module is loaded by a build, which may have no NumPy: it imports Python's own library alone."""
import difflib
import re
from types import SimpleNamespace
from typing import NamedTuple, Optional, Tuple


TABLE = "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"
ROWS = "survival,mass,steps"  # the probes that imported attention goes through, where none are named


class Usage(Exception):
    """What is wrong with a command line, as a sentence."""


class Option(NamedTuple):
    """As struct opt of base/opt.h has them.  Without arg it is a flag; a list may be given several times; a number has min and max."""
    name: str
    arg: Optional[str]
    help: str
    short: Optional[str] = None
    standard: Optional[str] = None
    absent: Optional[str] = None
    type: str = "str"  # str, int, real, word, list
    min: float = 0
    max: float = 0
    words: Tuple[str, ...] = ()


class Command(NamedTuple):
    """As struct command of cli/commands.h has them; module: the one of this package that has run()."""
    name: str
    module: str
    group: str
    summary: str
    example: str
    operands: str  # as usage shows them
    kind: str      # of operands: "file", "trace"
    least: int
    most: int      # -1: any number
    options: Tuple[Option, ...]
    needs: Optional[str] = None
    figure: bool = False  # it takes the options of figures, which `kvfate draw` checks
    listed: bool = True  # False: the program runs it as a part of a command of its own
    exits: Tuple[Tuple[str, Optional[str]], ...] = ()  # (exit status, when) of those that differ from the usual ones; ("3", None): PARTIAL


# Options of figures, as figure_options.c has them: their values are handed on to `kvfate draw`.
FIGURE = tuple(Option(name, arg, "") for name, arg in (
    ("size", "WxH"), ("dpi", "N"), ("cmap", "NAME"), ("vmin", "X"), ("vmax", "X"), ("title", "TEXT"), ("font", "NAME"), ("style", "K=V,..."), ("preview", None)))


# Options that every command takes (cli/common.c): those that a command does not declare. BARRED: the reasons why an option is rejected.
COMMON = (
    Option("quiet", None, "print only errors on the standard error", "q"),
    Option("verbose", None, "print the time and the memory that the command used", "v"),
    Option("output", "FILE.txt|FILE.json", "write the standard output to this file", "o"),
    Option("overwrite", None, "replace an existing file; -o always does so"),
)
BARRED = {"--json": "this command prints no table as JSON; leave --json out", "-t": "this command computes on one thread; leave -t out"}
BARRED["--threads"] = BARRED["-t"]


COMMANDS = {c.name: c for c in (
    Command("quickstart", "quickstart", "running", "run three methods on a prompt and write a page of kept tokens and answers",
            "kvfate quickstart --no-open -o first", "[PROMPT]", "text", 0, 1, options=(
                Option("output", "FOLDER", "the folder of the page; an older page is replaced", "o", standard="kvfate-quickstart"),
                Option("model", "FILE", "model: a GGUF file, a folder or a name", "m", absent="SmolLM2 in the cache folder"),
                Option("file", "FILE", "read the prompt from a text file", "f", absent="PROMPT, or a built-in prompt"),
                Option("methods", "LIST", "methods to compare", standard="full,expected-attention,streamingllm"),
                Option("budget", "N|P%", "entries of each KV head, or a fraction of the tokens of the prompt; full keeps all", "B", standard="50%"),
                Option("predict", "N", "maximum number of new tokens", "n", type="int", min=2, max=1 << 12, standard="32"),
                Option("prompts", "N", "also run N built-in prompts, and add a table with 95 % confidence intervals", type="int", min=1, max=1 << 12, standard="1"),
                Option("no-open", None, "do not open the page in a browser"),
                Option("threads", "N", "threads", "t", absent="number of cores", type="int", min=1, max=256),
            )),
    Command("study", "study", "quality", "run a study from one file: models, methods, budgets, texts, seeds",
            "kvfate study plan.toml --plan", "PLAN.toml", "file", 1, 1, options=(
                Option("plan", None, "print the jobs, their time and their memory, and stop"),
                Option("so-far", None, "generate no answers; make the tables and figures of the existing ones"),
                Option("data", "TEXT=FILE", "the data of a text, instead of the data of the file; several files of one text may follow", type="list"),
                Option("threads", "N", "threads, instead of the number of the file", "t", absent="as in the file", type="int", min=1, max=256),
                Option("ranks", "N", "let mpirun start N processes for each job", type="int", min=1, max=1 << 16),
                Option("shard", "I/N", "do part I of N of each job, and make no tables"),
                Option("slurm", "N", "print a script that runs N such parts as a Slurm array", type="int", min=1, max=1 << 16),
            )),
    Command("tasks", "benchmarks", "quality", "write the prompts of a public benchmark",
            "kvfate tasks gsm8k gsm8k.jsonl -n 2 -o gsm8k-tasks.jsonl", "BENCHMARK[:TASK] [DATA...]", "file", 1, -1, needs="-o OUT.jsonl", options=(
                Option("output", "OUT.jsonl", "the prompts, one JSON object a line", "o"),
                Option("repository", "DIR", "checkout of the benchmark's public repository, with its templates", absent="none"),
                Option("model", "FILE", "model that counts the tokens", "m", absent="SmolLM2 in the cache folder"),
                Option("count", "N", "number of prompts", "n", type="int", min=1, max=1 << 20, absent="all; of ruler 500"),
                Option("tokens", "N", "maximum length: of ruler the prompt and the answer, otherwise longer prompts lose their middle", type="int", min=64, max=1 << 24,
                       absent="4,096 of ruler; otherwise no limit"),
                Option("answer-tokens", "N", "maximum tokens of an answer", type="int", min=1, max=1 << 20, absent="as in the benchmark"),
                Option("raw", None, "no chat template for any prompt"),
                Option("scorer", "NAME", "another published scorer of gsm8k, math500 or aime", absent="the first of the list"),
                Option("seed", "S", "seed of ruler's samples", "s", type="int", min=0, max=1 << 32, absent="42"),
                Option("words", "DIR", "word lists of ruler, as the package wonderwords has them", absent="the installed package"),
                Option("family", "NAME", "family of infinitebench's templates", type="word", words=("yarn_mistral", "gpt4", "claude2"), absent="yarn_mistral"),
                Option("turns", None, "of scbench: each question follows the earlier questions and their gold answers in one chat"),
                Option("shots", "N", "solved examples before each question of gsm8k", type="int", min=1, max=64, absent="0"),
                Option("train", "FILE", "training part of gsm8k, for --shots", absent="none"),
            )),
    Command("tasks score", "scoring", "quality", "score answers by the published rules of a benchmark",
            "kvfate tasks score gsm8k-tasks.jsonl gsm8k-answers.jsonl", "TASKS.jsonl ANSWERS.jsonl...", "file", 2, -1, figure=True, options=(
                Option("output", "OUT", TABLE, "o"),
                Option("json", None, "the table as JSON to stdout"),
                Option("by", "KEY", "a row for each value of this member of the tasks, such as turn, length or difficulty", absent="one row"),
                Option("items", None, "a row for each answer"),
            )),
    Command("gates", "gates", "training", "convert published gates or head tables to safetensors",
            "kvfate gates convert trimkv_weights.pth --overwrite", "convert FILE.pt|FILE.tsv|FILE.npy", "gates", 2, 2, options=(
                Option("output", "OUT.safetensors", "the converted file", "o", absent="the name of the input, ending in .safetensors"),
                Option("overwrite", None, "replace an existing file"),
            )),
    Command("models get", "models_get", "running", "fetch a model", "", "NAME", "name", 1, 1, listed=False, options=(
                Option("accept", None, "accept the terms of the model's licence"),
            )),
    Command("trace import", "imports", "files", "import a trace from arrays and tables",
            "kvfate trace import a.npz -o own.kvf", "FILE|FOLDER ...", "file", 1, -1, needs="-o OUT.kvf", options=(
                Option("output", "OUT.kvf", "the trace", "o"),
                Option("overwrite", None, "replace an existing trace"),
                Option("heads", "KV/QUERY", "KV heads and query heads of a layer, such as 2/8", absent="as in the fields"),
                Option("prompt", "N", "the first N tokens are the prompt", type="int", min=0, max=1 << 24, absent="as in the roles"),
                Option("probes", "LIST", "probes to compute from attention rows", standard=ROWS),
                Option("model", "NAME", "the name of the model", absent="no name"),
                Option("method", "NAME", "the name of the method", absent="no name"),
                Option("budget", "N|P%", "entries that the method keeps in a head, or a fraction of the tokens of --prompt", absent="none"),
            )),
    Command("trace export", "exports", "files", "export a trace as arrays or tables",
            "kvfate trace export a.kvf -o a.npz", "X.kvf", "trace", 1, 1, needs="-o OUT", options=(
                Option("output", "NAME.npz|NAME.jsonl", "one file of arrays, one of lines, or a folder of any other name", "o"),
                Option("form", "FORM", "of a folder", type="word", words=("npy", "tsv", "parquet", "feather"), absent="npy"),
                Option("overwrite", None, "replace existing files"),
            )),
    Command("predict", "predict", "quality", "test how well trace statistics predict ablation effects",
            "kvfate predict effect.tsv run.kvf saliency.kvf -o predict.tsv", "EFFECT.{tsv,json} X.kvf... [TABLE...]", "table", 2, 256, figure=True, options=(
                Option("output", "OUT", TABLE, "o"),
                Option("json", None, "the table as JSON to stdout"),
                Option("value", "COLUMN", "of the effect", standard="kl"),
                Option("only", "LIST", "these candidates, as the table names them"),
                Option("units", None, "the statistic and the effect of every unit"),
                Option("criterion", "LIST", "selected sets: top64 ... mass.99, or all", standard="top64,mass.95"),
                Option("horizon", "N", "age of survival", type="int", min=0, max=1 << 24, absent="the cache size of the effect, or 64"),
                Option("sinks", "K", "first tokens, of sink mass", type="int", min=0, max=1 << 24, absent="as in the effect, or 4"),
            ), exits=(
                ("0", "The table was made."),
                ("1", "A file could not be read, or is damaged."),
                ("2", "The command line was wrong, or the files do not go together."),
                ("3", None),
            )),
    Command("claims", "claims", "quality", "judge claims of papers by the tables of your runs",
            "kvfate claims results", "RESULTS_FOLDER...|freeze", "folder", 0, 64, figure=True, options=(
                Option("output", "OUT", TABLE, "o"),
                Option("json", None, "the table as JSON on the standard output"),
                Option("register", "FILE", "a register as TOML or JSON", absent="the papers' claims"),
                Option("check", None, "check that the tables and columns of the register exist"),
                Option("coverage", None, "how often each interval covers the truth in simulations at its n"),
                Option("texts", "FOLDER", "with freeze: the texts of the run", absent="none"),
                Option("model", "FILE", "with freeze: a model of the run, or its name in 'kvfate models'; several are allowed", "m", type="list"),
                Option("input", "FILE", "with freeze: another input, such as gates or a null model; several are allowed", type="list"),
                Option("seed", "N", "with freeze: the seed of the run", type="int", min=0, max=1 << 24, standard="0"),
            ), exits=(
                ("0", "The claims were judged, whatever the verdicts, or the inputs were frozen."),
                ("1", "It failed: a table or the register cannot be read, or --check found something wrong."),
                ("3", "The claims were judged, and inputs of the tables differ from the frozen ones."),
            )),
)}


def _number(option, text):
    found = re.fullmatch(r"([-+]?\d+)([kM]?)", text) if option.type == "int" else None
    try:
        value = int(found[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[found[2]] if found else None if option.type == "int" else float(text)
    except ValueError:
        value = None
    if value is None or value != value or value in (float("inf"), float("-inf")):
        raise Usage("--%s: '%s' is no %s" % (option.name, text, "whole number" if option.type == "int" else "number"))
    if (option.min or option.max) and not option.min <= value <= option.max:
        raise Usage("--%s: %s is not within %g and %g" % (option.name, text, option.min, option.max))
    return value


def _value(option, text):
    if option.type in ("int", "real"):
        return _number(option, text)
    if option.type == "word" and text not in option.words:
        raise Usage("--%s: '%s' is none of %s" % (option.name, text, ", ".join(option.words)))
    return text


FORMATS = ("kvf", "png", "svg", "pdf", "webp", "html", "tsv", "csv", "json", "jsonl", "npz", "npy", "txt", "md", "gguf", "zip", "sqlite", "safetensors")


def _check_output(option, name):
    """Rejects an empty output name, and a name with the ending of a format that the help does not list."""
    if not name:
        raise Usage("-o: the name of the output file is empty")
    end = name.rpartition(".")[2].lower() if "." in name else None
    shown = [x.partition(".")[2] for x in option.arg.split("|")]
    if any(shown) and end in FORMATS and end not in shown:
        raise Usage("-o %s: .%s is another format; write -o %s" % (name, end, option.arg))


def usage(command):
    return "kvfate %s" % " ".join(filter(None, (command.name, command.operands, command.needs, "[options]" if command.options else "")))


def _options(command):
    own = command.options + (FIGURE if command.figure else ())
    names = {o.name for o in own}
    return own + tuple(o for o in COMMON if o.name not in names)


def declares(command, name):
    """Returns True if the command handles the option itself."""
    return any(o.name == name for o in command.options)


def _option(command, word):
    """Returns (option, value in the same word or None) of a word of the command line."""
    name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
    for o in _options(command):
        if name == "--" + o.name or o.short and name == "-" + o.short:
            if o.arg is None and equals:
                raise Usage("%s takes no value" % name)
            return o, value if equals else None
    if name in BARRED:
        raise Usage("%s: %s" % (name, BARRED[name]))
    near = difflib.get_close_matches(name, ["--" + o.name for o in _options(command)], 1)
    raise Usage("unknown option %s%s; 'kvfate %s -h' lists the options" % (name, " (did you mean %s?)" % near[0] if near else "", command.name))


def parsed(command, words):
    """(request, operands) of the words behind the name of a command."""
    request, operands, words = {}, [], list(words)
    for o in _options(command):
        standard = None if o.standard is None else _value(o, o.standard)
        request[o.name.replace("-", "_")] = [] if o.type == "list" else False if o.arg is None else standard
    while words:
        word = words.pop(0)
        if word == "--":  # the names are passed to other programs, which would take them for options
            operands += ["./" + w if w.startswith("-") and w != "-" else w for w in words]
            break
        if word == "-" or not word.startswith("-"):
            operands.append(word)
            continue
        option, value = _option(command, word)
        if option.arg is None:
            value = True
        elif value is None and not words:
            raise Usage("%s needs a value, %s" % (word, option.arg))
        else:
            value = _value(option, words.pop(0) if value is None else value)
        if option.name == "output":
            _check_output(option, value)
        key = option.name.replace("-", "_")
        request[key] = request[key] + [value] if option.type == "list" else value
    if len(operands) < command.least or 0 <= command.most < len(operands):
        raise Usage("%s; usage: %s" % ("a file is missing" if len(operands) < command.least else "too many operands", usage(command)))
    return SimpleNamespace(**request), operands
