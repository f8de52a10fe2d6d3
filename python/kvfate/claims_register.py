"""A register of claims: sentences of papers, each as a statistic with a direction, a null and an interval.

docs/studies/claims.md defines the keys, docs/studies/claims.toml is the register of the papers.  A register is TOML or JSON of the form
{"claim": [{...}, ...]}.  The module uses Python's own library only."""
import json
import math
import sys
import os
import re
from typing import NamedTuple, Optional

from . import program
from .errors import Error, regular
from .study_plan import toml

HERE = os.path.dirname(os.path.abspath(__file__))
SHIPPED = [os.path.join(HERE, "claims.toml"), os.path.join(HERE, "..", "..", "docs", "studies", "claims.toml")]  # installed; in the sources
MOST_BYTES, MOST_CLAIMS, MOST_UNITS, MOST_KEYS = 1 << 20, 1024, 65536, 8
REDUCES = ("one", "mean", "median", "least", "largest", "spread", "share", "spearman")
LEAST_N = {"columns": 6, "t": 4, "bca": 10, "permutation": 6, "wilson": 10, "none": 1}  # 2 / 2^5 > .05: five signs never suffice
SIDE = ("table", "run", "rows")
KEYS = {"id", "paper", "where", "claim", "untestable", *SIDE, "minus", "value", "less", "with", "unit", "reduce", "than", "at", "at_than", "null",
        "interval", "scale", "note", "title", "fixed", "heads", "cluster", "needs", "least_n", "null_check", "control", "within", "no_null"}
TEXTS = ("paper", "where", "title", "claim", "untestable", "value", "less", "with", "cluster", "heads", "no_null", "fixed")
NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
CELL = re.compile(r"(!|<=|>=|<|>)? *(?:(T)(?:/(%s))?|(%s) T|([-+]?%s))" % (NUMBER, NUMBER, NUMBER))


class Side(NamedTuple):
    """Rows of a file: FOLDER/TABLE.tsv, or FOLDER/TABLE.RUN.tsv; rows: {column: the wanted cells}."""
    table: str
    run: str
    rows: dict


class Other(NamedTuple):
    """Other data for the same judgement."""
    of: Side
    minus: Optional[Side]


class Claim(NamedTuple):
    """A checked claim.  Optional keys that the register lacks are None."""
    id: str
    paper: str
    where: str
    text: str
    fixed: str
    untestable: Optional[str]
    of: Optional[Side] = None
    minus: Optional[Side] = None
    null_check: Optional[Other] = None
    control: Optional[Other] = None
    no_null: Optional[str] = None
    value: Optional[str] = None
    less: Optional[str] = None
    other: Optional[str] = None  # the column `with`
    unit: tuple = ()
    cluster: Optional[str] = None
    within: str = "mean"
    reduce: str = "one"
    than: str = ">"
    at: float = math.nan
    at_than: str = ">"
    null: float = math.nan
    null_high: float = math.nan
    title: str = ""  # a few words for a figure
    interval: str = "columns"
    least_n: int = 0
    needs: dict = {}

    def replace(self, **parts):
        return self._replace(**parts)


def comparison(text):
    """Returns (operator, number, whether the number is a factor of T) of "NUMBER", "T", "T/NUMBER" or "NUMBER T", with an optional
    comparison in front, or None for other texts."""
    found = CELL.fullmatch(text)
    if not found:
        return None
    op, T, part, factor, plain = found.groups()
    value = float(plain or factor or 1) / (float(part or 1) or math.inf)
    return (op or "=", value, plain is None) if math.isfinite(value) and (plain is not None or value > 0) else None


def holds(op, wanted, v):
    """Returns whether v, a number or an array, fulfils a comparison.  Equal numbers may differ by 1e-9."""
    near = abs(v - wanted) <= 1e-9 * max(1, abs(wanted))
    return {"=": near, "!": ~near if hasattr(near, "shape") else not near, "<": v < wanted, "<=": v <= wanted, ">": v > wanted, ">=": v >= wanted}[op]


def _plain(text):
    """Names become parts of file names."""
    return isinstance(text, str) and re.fullmatch(r"[\w-][\w.-]{0,63}", text, re.ASCII) is not None


def _is_number(v):
    """Returns true if v is a number that a double can hold."""
    return isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) <= sys.float_info.max


def _is_cell(v):
    return isinstance(v, str) or _is_number(v)


class _Reader:
    """The keys of one claim; every error names it."""

    def __init__(self, o, name):
        self.o, self.name = o, name

    def bad(self, sentence):
        raise Error('claim "%s": %s' % (self.name, sentence))

    def check_keys(self, o, allowed, name):
        if not isinstance(o, dict):
            self.bad('"%s" is no object' % name)
        for key in o:
            if key not in allowed:
                self.bad('no key is called "%s"' % key)

    def word(self, key, words, otherwise):
        value = self.o.get(key, otherwise)
        if not isinstance(value, str) or value not in words:
            self.bad('"%s" has a value that is none of its names' % key)
        return value

    def side(self, o, base):
        s = Side(*(o.get(key, otherwise) for key, otherwise in zip(SIDE, base)))
        if not _plain(s.table) or s.run != "" and not _plain(s.run):
            self.bad("\"table\" and \"run\" are letters, digits, '-', '_' and '.'")
        if not isinstance(s.rows, dict):
            self.bad('"rows" is no object')
        for what in s.rows.values():
            if not (what and all(map(_is_cell, what)) if isinstance(what, list) else _is_cell(what)):
                self.bad('what "rows" asks for is a text, a number or several of them')
        return s

    def other(self, key, of, minus):
        """Returns other data: null_check or control."""
        if key not in self.o:
            return None
        o = self.o[key]
        self.check_keys(o, (*SIDE, "minus"), key)
        less = o.get("minus", {})
        if "minus" in o and minus is None:
            self.bad('"minus" of "%s" belongs to a claim that has a "minus"' % key)
        self.check_keys(less, SIDE, "minus")
        return Other(self.side(o, of), minus and self.side(less, minus))

    def unit(self):
        unit = self.o.get("unit", [])
        unit = unit if isinstance(unit, list) else [unit]
        if len(unit) > MOST_KEYS or not all(isinstance(key, str) for key in unit):
            self.bad('"unit" is the name of a column, or up to %d of them' % MOST_KEYS)
        return tuple(unit)

    def nulls(self, than):
        null, both = self.o.get("null"), than == "between"
        ends = null if both and isinstance(null, list) else [null]
        if len(ends) != 1 + both or not all(map(_is_number, ends)) or both and not ends[0] < ends[1]:
            self.bad('"null" is a number, or [low, high] with "between"')
        return float(ends[0]), float(ends[1]) if both else math.nan

    def claim(self):
        o = self.o
        self.check_keys(o, KEYS, "claim")
        for key in TEXTS:
            if key in o and (not isinstance(o[key], str) or not o[key] and key in ("untestable", "no_null", "heads")):
                self.bad('"%s" is %s' % (key, "the reason, as a text" if key in ("untestable", "no_null") else "a text"))
        if not all(key in o for key in ("paper", "where", "claim")):
            self.bad('"paper", "where" and "claim" are texts that it needs')
        if "fixed" in o and not re.fullmatch(r"\d{4}-\d\d-\d\d", o["fixed"], re.ASCII):
            self.bad('"fixed" is a date, such as "2026-01-31"')
        c = Claim(self.name, o["paper"], o["where"], o["claim"], o.get("fixed", ""), o.get("untestable"), title=o.get("title", ""))
        if c.untestable and "table" in o:
            self.bad("it is untestable and has a table")
        if c.untestable:
            return c
        of = self.side(o, (None, "", {}))
        minus = None
        if "minus" in o:
            self.check_keys(o["minus"], SIDE, "minus")
            minus = self.side(o["minus"], of)
        than = self.word("than", (">", "<", "between"), None)
        null, null_high = self.nulls(than)
        interval = self.word("interval", LEAST_N, "columns")
        c = c.replace(of=of, minus=minus, null_check=self.other("null_check", of, minus), control=self.other("control", of, minus),
                      no_null=o.get("no_null"), value=o.get("value"), less=o.get("less"), other=o.get("with"), unit=self.unit(),
                      cluster=o.get("cluster"), within=self.word("within", REDUCES, "mean"), reduce=self.word("reduce", REDUCES, "one"), than=than,
                      at=o.get("at", math.nan), at_than=self.word("at_than", (">", "<", "between"), than), null=null, null_high=null_high,
                      interval=interval, least_n=o.get("least_n", LEAST_N[interval]), needs=o.get("needs", {}))
        self.check_statistic(c)
        self.check_guards(c)
        return c

    def check_statistic(self, c):
        """Rejects keys that do not go together."""
        one = c.reduce == "one"
        for wrong, sentence in (
                (not c.value, 'there is no "value"'),
                (c.within == "one" or c.within != "mean" and not c.unit, '"within" says how several rows of a "unit" become its value'),
                (("spearman" in (c.reduce, c.within)) != (c.other is not None), '"with" belongs to "spearman"'),
                (("share" in (c.reduce, c.within)) != ("at" in self.o) or "at" in self.o and not _is_number(c.at),
                 '"at" is a number and belongs to "share"'),
                ("at" in self.o and c.at_than == "between", '"at_than" is > or <'),
                (c.interval == "columns" and not one, 'intervals of "columns" are those of one row'),
                (one and c.interval not in ("columns", "none"), 'one row is not resampled: the interval is "columns" or "none"'),
                (c.interval == "t" and c.reduce != "mean", '"t" is the interval of a mean'),
                (c.interval == "wilson" and c.reduce != "share", '"wilson" is the interval of a share'),
                (c.interval == "permutation" and (c.than == "between" or c.reduce not in ("mean", "spearman")),
                 '"permutation" is for the direction of a mean or of "spearman"'),
                (c.minus and not one and not c.unit, '"minus" needs the "unit" that pairs the rows'),
                (c.minus and c.reduce == "spearman", '"spearman" has no "minus"')):
            if wrong:
                self.bad(sentence)

    def check_guards(self, c):
        """Rejects wrong guards against chance, dependence and data that support anything."""
        if not (_is_number(c.least_n) and 1 <= c.least_n <= MOST_UNITS and c.least_n == int(c.least_n)):
            self.bad('"least_n" is a whole number above 0')
        if c.cluster is not None and not c.unit:
            self.bad('"cluster" is a column, for claims that have a "unit"')
        if c.cluster is not None and c.reduce in ("share", "spread"):
            self.bad("a share or a spread of units is not one of the means of clusters")
        if {"head", "layer"} & set(c.unit) and "heads" not in self.o:
            self.bad('its units are heads or layers: "heads" says in words which others are meant')
        if not isinstance(c.needs, dict):
            self.bad('"needs" is no object')
        for text in c.needs.values():
            if not isinstance(text, str) or not comparison(text) or comparison(text)[2]:
                self.bad('"needs" asks for numbers, such as ">= 4096"')
        if c.no_null and c.null_check:
            self.bad('"no_null" is the reason why there is no "null_check", as a text')


def _once(pairs):
    """Rejects a key that an object of JSON has twice."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


def _refuse(word):
    raise ValueError("%s is no number of JSON" % word)


def _parsed(path, data):
    name, load = ("TOML", toml().loads) if path.endswith(".toml") else \
        ("JSON", lambda text: json.loads(text, object_pairs_hook=_once, parse_constant=_refuse))
    try:
        root = load(data.decode("utf-8"))
        json.dumps(root, ensure_ascii=False, default=str).encode()  # rejects half of a character, such as "\\ud800"
        return root
    except RecursionError:
        raise Error("it is nested too deeply") from None
    except ValueError as e:
        raise Error("no %s: %s" % (name, e)) from None


def claims_of(root):
    """Returns the claims of a register as it was written.  Error names the first claim that is wrong."""
    listed = root.get("claim") if isinstance(root, dict) else None
    if not isinstance(listed, list) or not listed:
        raise Error('no register of claims: {"claim": [...]}')
    if len(listed) > MOST_CLAIMS:
        raise Error("more than %d claims" % MOST_CLAIMS)
    claims = {}
    for number, o in enumerate(listed, 1):
        name = o.get("id") if isinstance(o, dict) else None
        if not _plain(name) or name[0] == ".":
            raise Error("claim %d has no \"id\" of letters, digits, '-', '_' and '.'" % number)
        if name in claims:
            raise Error('claim "%s": the id is there twice' % name)
        claims[name] = _Reader(o, name).claim()
    return list(claims.values())


def path_of(path=None):
    """Returns the path of a register, by default that of the papers."""
    return path or next((p for p in SHIPPED if os.path.exists(p)), SHIPPED[0])


def read(path=None):
    """Reads a register, by default that of the papers."""
    path = path_of(path)
    try:
        regular(path)
        with open(path, "rb") as f:
            data = f.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise Error("a register has at most %d bytes" % MOST_BYTES)
        return claims_of(_parsed(path, data))
    except OSError as e:
        raise Error("%s: cannot be opened: %s" % (path, e.strerror)) from None
    except Error as e:
        raise e if str(e).startswith(path) else Error("%s: %s" % (path, e)) from None


# ---- whether the tables and columns of a register exist

DOCUMENTS = {"doc", "source", "nth", "method"}  # columns that claims.sh adds to the tables of one document each
TABLES = {  # of commands that `kvfate corpus` does not know
    "needles": "doc head step dilution useful_mass rho_u rho_d dilution_retained bound dilution_oracle preferential_share",
    "dynamics": "head layer head_index prompt rollout surrogate quantity index x value count n",
    "eval-docs": "doc doc_hash method options budget nll kl top1_agree kv_end kv_mean kv_peak triggers",
    "eval": "method budget docs tokens nll nll_low nll_high kl kl_low kl_high top1_agree kv_end kv_mean kv_peak triggers gates"}


def _columns(analysis):
    """Returns the columns of the table that `kvfate corpus` makes of an analysis.  The ends of its first value also have plain names."""
    found = {*analysis["pool_keys"], *DOCUMENTS, "low", "high", "documents"}
    for m in analysis["measures"]:
        found |= {m[key] for key in ("value", "numerator", "denominator", "half_life") if key in m}
        found |= {m[key] + end for key in ("value", "half_life") if key in m for end in ("_low", "_high", "_documents", "_sum")}
    return found


def missing(claims):
    """Returns a line for each table and column that a claim names and no command makes."""
    known = {a["name"]: _columns(a) for a in program.described()["analyzers"] if a["pools"]}
    known = {**{name: set(text.split()) for name, text in TABLES.items()}, **known}
    wrong = []
    for c in claims:
        for s in [] if c.untestable else filter(None, (c.of, c.minus, *(c.null_check or ()), *(c.control or ()))):
            if s.table not in known:
                wrong.append("%s: no command makes a table %s" % (c.id, s.table))
                continue
            columns = known[s.table]
            wrong += ["%s: table %s has no column %s" % (c.id, s.table, name)
                      for name in filter(None, (c.value, c.less, c.other, *c.unit, *s.rows)) if name not in columns]
            if c.interval == "columns" and not {c.value + "_low", "low"} & columns:
                wrong.append("%s: table %s has no interval of %s" % (c.id, s.table, c.value))
    return wrong
