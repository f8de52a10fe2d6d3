"""What a study file says, checked, and the jobs that it stands for (docs/guide/study.md)."""
import json
import os
import re
from typing import NamedTuple, Optional

from . import scoring
from .budgets import percent
from .commands import Usage
from .errors import Error, regular
from .model_list import MODELS
from .models_get import model_file
from .scorers import LENGTHS

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
MOST_JOBS = 100000
# Of each kind of text: {key: (type, what it is where it is not given; ... where it must be)}
TEXTS = {
    "documents": {"data": (list, ...), "docs": (int, 24), "prompt_tokens": (int, 512), "score_tokens": (int, 128)},
    "needles": {"tokens": (int, ...), "count": (int, 40), "keys": (int, 1), "values": (int, 1), "queries": (int, 1), "digits": (int, 5),
                "haystack": (str, "prose"), "depth": (float, None), "hops": (int, None), "question": (str, "known")},
    "mathematics": {"data": (list, ...), "count": (int, 40), "most_tokens": (int, 256), "samples": (int, 1), "temperature": (float, 0.0), "instruction": (str, None)},
    "benchmark": {"data": (list, ...), "count": (int, None)},
    "choices": {"data": (list, ...), "count": (int, 40), "length": (str, "bytes")},
    "claims": {"data": (list, ...), "docs": (int, 2), "tokens": (int, 1024), "budget": (int, 64), "needles": (int, 8), "short": (int, None),
               "queries": (str, None), "write_gates": (str, None), "null_model": (str, None), "null_gates": (str, None), "null_write_gates": (str, None),
               "trainings": (str, None), "freeze": (str, None), "what": (str, None), "probes": (str, None), "sources": (str, None), "nulls": (int, None),
               "memory": (int, None), "docs_of": (dict, {})},
}
FILES = ("write_gates", "null_model", "null_gates", "null_write_gates", "trainings", "freeze")  # keys that name a file or a folder
QUESTIONS = ("known", "unknown")  # whether methods see the question of a needle before they cut the cache
SHARED = ("documents", "needles")  # their rows share the prompts
FIGURES = {"documents": ("kl",), "needles": ("right", "kl"), "mathematics": ("right",), "choices": ("right",), "benchmark": ("right",)}  # columns that are drawn against entries or budgets
QUESTION, CHOICES = 128, 4  # tokens and choices of a question, for estimates
CLAIMS = {"full": 2, "kept": 4, "memory": 3, "eval": 5}  # how often claims.sh reads a text for each part, about
TOP = {"out": (str, None), "models": (list, ["default"]), "methods": (list, []), "budgets": (list, []), "gates": (list, []), "head_budgets": (str, None),
       "seeds": (list, [0]), "kv_type": (str, "auto"), "activations": (int, None), "threads": (int, None)}


class Model(NamedTuple):
    name: str
    path: Optional[str]  # None: the default one


class Text(NamedTuple):
    name: str
    kind: str  # of TEXTS
    values: dict

    @property
    def lines(self):
        """The lines of `kvfate tasks` of a benchmark."""
        return scoring.lines(tuple(self.values["data"]), self.values["count"])

    @property
    def count(self):
        return len(self.lines) if self.kind == "benchmark" else self.values["docs" if "docs" in self.values else "count"]

    @property
    def prompt(self):
        """Tokens of a prompt; of questions, whose lengths differ, about so many."""
        if self.kind == "benchmark":
            return sum(x["task"].get("prompt_tokens", QUESTION) for x in self.lines) / self.count
        return self.values.get("prompt_tokens", self.values.get("tokens", QUESTION))

    @property
    def readings(self):
        """How often a prompt is read; methods and budgets share it, but for those that read it in their own way."""
        if self.kind == "claims":
            return sum(n for part, n in CLAIMS.items() if part in (self.values["what"] or " ".join(CLAIMS)).split())
        return 1 if self.kind in (*SHARED, "benchmark") else self.values.get("samples", CHOICES)

    @property
    def steps(self):
        """Tokens that are fed after a prompt; of needles about so many, as the answer is a sentence."""
        if self.kind == "documents":
            return self.values["score_tokens"]
        if self.kind == "mathematics":
            return self.values["most_tokens"] * self.values["samples"]
        if self.kind == "benchmark":
            return sum(x["n"] for x in self.lines) / self.count
        if self.kind == "choices":
            return CHOICES * 4
        if self.kind == "claims":
            return 2 * self.values["tokens"] if "memory" in (self.values["what"] or "memory").split() else 0  # the half of it in four runs
        return 12 + self.values["queries"] * (8 + self.values["values"] * (self.values["digits"] + 2))


class Job(NamedTuple):
    """One model on one text with one seed, under all methods and budgets: they share the prompts, so one command does them."""
    model: Model
    text: Text
    seed: int

    @property
    def name(self):
        return "%s-%s-s%d" % (self.model.name, self.text.name, self.seed)

    @property
    def count(self):
        """Texts of the job; of claims for each source."""
        return self.text.values.get("docs_of", {}).get(self.model.name, self.text.count)


class Plan(NamedTuple):
    path: str
    out: str
    models: tuple
    methods: tuple
    budgets: tuple
    gates: tuple
    texts: tuple
    seeds: tuple
    kv_type: str
    activations: Optional[int]  # None: as kvfate chooses
    threads: Optional[int]
    head_budgets: Optional[str] = None  # the table of methods with allocation=file

    def inputs(self, methods):
        """The options that name the files which these methods need."""
        words = [w for g in self.gates for w in ("--gates", g)]
        if self.head_budgets and any("allocation=file" in m for m in methods):
            words += ["--head-budgets", self.head_budgets]
        return words

    @property
    def precision(self):
        """The options that say it; bits that are not given go without saying, as in states from before there was a choice."""
        return ["--kv-type", self.kv_type] + (["--activations", str(self.activations)] if self.activations else [])

    @property
    def jobs(self):
        return [Job(m, t, s) for m in self.models for t in self.texts for s in self.seeds]

    @property
    def rows(self):
        """Methods at budgets, at most: those that have no budget run once."""
        return len(self.methods) * len(self.budgets)


def toml():
    """Returns the module that reads TOML; Error if this Python has none."""
    try:
        import tomllib
    except ImportError:
        try:
            import tomli as tomllib
        except ImportError:
            raise Error("TOML needs Python 3.11, whose library reads it, or the package tomli: pip install tomli, or set KVFATE_PYTHON "
                        "to another Python") from None
    return tomllib


def _parsed(path):
    """The file as it is written: JSON where its name ends so, else TOML."""
    form, module = ("JSON", json) if path.endswith(".json") else ("TOML", toml())
    try:
        regular(path)
        with open(path, "rb") as f:
            given = module.load(f)
    except OSError as e:
        raise Error("%s: cannot read: %s" % (path, e.strerror)) from None
    except (ValueError, RecursionError) as e:  # of both
        raise Error("%s: no %s: %s" % (path, form, e)) from None
    if not isinstance(given, dict):
        raise Error("%s: a study file in JSON is one object" % path)
    odd = next((t for t in _texts(given) if "\0" in t or any("\ud800" <= c <= "\udfff" for c in t)), None)
    if odd is not None:
        raise Error("%s: the text %s holds a zero or half of a character" % (path, ascii(odd)))
    return given


def _texts(value):
    """All texts of a file."""
    if isinstance(value, dict):
        return [t for key, one in value.items() for t in (key, *_texts(one))]
    return [t for one in value for t in _texts(one)] if isinstance(value, list) else [value] if isinstance(value, str) else []


def _checked(path, where, given, known):
    """{key: value} of a table of the file, with what is not given."""
    for key in given:
        if key not in known:
            raise Error("%s: %s has the unknown key '%s'; known are %s" % (path, where, key, ", ".join(sorted(known))))
    values = {}
    for key, (kind, standard) in known.items():
        if key not in given:
            if standard is ...:
                raise Error("%s: %s has no '%s'" % (path, where, key))
            values[key] = standard
            continue
        value = given[key]
        if kind is float and type(value) is int and abs(value) <= 1 << 53:
            value = float(value)
        if type(value) is not kind:
            raise Error("%s: '%s' of %s must be a %s" % (path, key, where, {list: "list", int: "whole number", str: "text", float: "number", dict: "table"}[kind]))
        if kind is int and not 1 <= value <= 1 << 24:
            raise Error("%s: '%s' of %s is not within 1 and %d" % (path, key, where, 1 << 24))
        values[key] = value
    return values


def _named(path, what, name):
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Error("%s: the name %r of %s becomes a part of file names: letters, digits, '.', '_' and '-', at most 80" % (path, name, what))
    return name


def _list_of(path, key, values, kind):
    if not values or any(type(v) is not kind for v in values) or len(set(values)) < len(values):
        raise Error("%s: '%s' must be a list of different %s" % (path, key, "texts" if kind is str else "whole numbers"))
    if kind is int and any(not 0 <= v <= 1 << 24 for v in values):
        raise Error("%s: '%s' has a number that is not within 0 and %d" % (path, key, 1 << 24))
    return tuple(values)


def _budgets(path, values):
    """Whole numbers of entries, and fractions of prompts as texts."""
    found = tuple(percent(v) if isinstance(v, str) else v for v in values)
    if not values or None in found or any(type(v) not in (int, str) for v in found) or len(set(found)) < len(found):
        raise Error('%s: \'budgets\' must be a list of different whole numbers, or fractions of a prompt such as "25%%"' % path)
    whole = [v for v in found if type(v) is int]
    return found if not whole or _list_of(path, "budgets", whole, int) else ()


def _models(path, values, near):
    models = []
    for word in _list_of(path, "models", values, str):
        listed = next((m for m in MODELS if m.name == word.lower()), None)
        if listed and not os.path.exists(near(word)):
            models.append(Model(listed.name, model_file(listed.name)))
            if not os.path.exists(models[-1].path):
                raise Error("%s: the model %s is not in the cache folder; 'kvfate models get %s' fetches it" % (path, word, listed.name))
            continue
        name = os.path.splitext(os.path.basename(word.rstrip("/")))[0]
        models.append(Model(_named(path, "a model", name), None if word == "default" else near(word)))
    if len({m.name for m in models}) < len(models):
        raise Error("%s: two models have one name; rename a file" % path)
    return tuple(models)


def _check_answers(path, name, values):
    if values.get("length", LENGTHS[0]) not in LENGTHS:
        raise Error("%s: 'length' of %s is one of %s" % (path, name, ", ".join(LENGTHS)))
    warm = values.get("temperature", 0)
    if not 0 <= warm <= 100:
        raise Error("%s: 'temperature' of %s is not within 0 and 100" % (path, name))
    if values.get("samples", 1) > 1 and warm == 0:
        raise Error("%s: several samples of %s need a 'temperature' above 0, or they are all the same" % (path, name))


def _text(path, given, near):
    if not isinstance(given, dict):
        raise Error("%s: [[text]] must be tables" % path)
    given = dict(given)
    name, kind = _named(path, "a text", given.pop("name", None)), given.pop("kind", None)
    if not isinstance(kind, str) or kind not in TEXTS:
        raise Error("%s: the text %s has %s; it is one of %s" % (path, name, "no kind" if kind is None else "no kind that is known: %r" % (kind,), ", ".join(TEXTS)))
    if "question" in given and "question" not in TEXTS[kind]:
        raise Error("%s: 'question' of %s: texts of the kind %s are not a context and a question about it; needles are" % (path, name, kind))
    values = _checked(path, "the text " + name, given, TEXTS[kind])
    if values.get("question", QUESTIONS[0]) not in QUESTIONS:
        raise Error("%s: 'question' of %s is one of %s" % (path, name, ", ".join(QUESTIONS)))
    if "data" in values:
        values["data"] = [near(f) for f in _list_of(path, "data of " + name, values["data"], str)]
    values.update({key: near(values[key]) for key in FILES if values.get(key)})
    if kind == "claims" and len(values["data"]) > 1:
        raise Error("%s: 'data' of %s is one folder of texts" % (path, name))
    if any(type(n) is not int or not 1 <= n <= 1 << 24 for n in values.get("docs_of", {}).values()):
        raise Error("%s: 'docs_of' of %s has a whole number of texts for the name of each model" % (path, name))
    _check_answers(path, name, values)
    return Text(name, kind, values)


def _with_data(path, texts, data):
    """The tables of texts with the files of --data TEXT=FILE, which are looked up from where the command was called."""
    named = {}
    for word in data:
        name, found, file = word.partition("=")
        if not found or not file:
            raise Usage("--data %s: give TEXT=FILE, TEXT being the name of a text of %s" % (word, path))
        named.setdefault(name, []).append(os.path.abspath(file))
    texts = [{**t, "data": named.pop(t["name"])} if isinstance(t, dict) and isinstance(t.get("name"), str) and t["name"] in named else t for t in texts]
    if named:
        raise Usage("--data %s=...: %s has no text of this name" % (next(iter(named)), path))
    return texts


def read(path, data=()):
    """The Plan of a study file, with the files of --data.  Names of files in it are looked up from its own folder."""
    given = _parsed(path)
    folder = os.path.dirname(os.path.abspath(path))
    def near(name):
        return os.path.join(folder, os.path.expanduser(name))
    texts = given.pop("text", [])
    if not isinstance(texts, list) or not texts:
        raise Error("%s: there is no [[text]]" % path)
    v = _checked(path, "the file", given, TOP)
    texts = _with_data(path, texts, data)
    texts = tuple(_text(path, t, near) for t in texts)
    if len({t.name for t in texts}) < len(texts):
        raise Error("%s: two texts have one name" % path)
    named = {m.name for m in _models(path, v["models"], near)}
    for t in texts:
        for model in t.values.get("docs_of", {}):
            if model not in named:
                raise Error("%s: 'docs_of' of %s names %s, which is none of the models %s" % (path, t.name, model, ", ".join(sorted(named))))
    if any(t.kind != "claims" for t in texts):
        for key in ("methods", "budgets"):
            if not v[key]:
                raise Error("%s: the file has no '%s'" % (path, key))
    out = v["out"] or os.path.splitext(os.path.basename(path))[0] + "-study"
    plan = Plan(path, near(out), _models(path, v["models"], near), _list_of(path, "methods", v["methods"], str) if v["methods"] else (),
                _budgets(path, v["budgets"]) if v["budgets"] else (), tuple(near(g) if os.sep in g else g for g in (_list_of(path, "gates", v["gates"], str) if v["gates"] else ())), texts,
                _list_of(path, "seeds", v["seeds"], int), v["kv_type"], v["activations"], v["threads"],
                near(v["head_budgets"]) if v["head_budgets"] else None)
    if len(plan.models) * len(plan.texts) * len(plan.seeds) > MOST_JOBS:
        raise Error("%s: more than %d jobs" % (path, MOST_JOBS))
    return plan


def check_data(plan):
    """That all data are there, before anything begins."""
    for text in plan.texts:
        for file in text.values.get("data", ()):
            if not (os.path.isdir if text.kind == "claims" else os.path.isfile)(file):
                raise Error("%s: the data of the text %s, %s, %s; --data %s=FILE names another file" % (
                    plan.path, text.name, file, "is no folder" if text.kind == "claims" else "is no file" if os.path.exists(file) else "is not there", text.name))


def is_shard(word):
    """Whether it is I/N with 1 <= I <= N."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", word)
    return bool(found) and 1 <= int(found[1]) <= int(found[2])
