"""The analyses of the program as methods of a trace: trace.survival(by="class").

Names, options and docstrings come from `kvfate list all --json`, so a new analysis of the program is a method without a change here."""
import inspect
import keyword

from .errors import Error
from .program import described


def names():
    """Returns {name of the method: name of the analysis} of all analyses of one trace."""
    return {a["name"].replace("-", "_"): a["name"] for a in described()["analyzers"] if a["min_traces"] <= 1}


def about(name):
    """Return the declaration of an analysis in `kvfate list all --json`."""
    return next(a for a in described()["analyzers"] if a["name"] == name)


def documentation(name):
    """Return the docstring of an analysis: its result, its options, and its figures with their columns."""
    a = about(name)
    figures = [f for f in described()["figures"] if f["table"] == name]
    lines = [a["summary"][0].upper() + a["summary"][1:] + ".", "", "Returns a table, one value per row in each column: a pandas.DataFrame if pandas is installed, else a kvfate.Table.",
             "attrs[\"units\"] has the unit of each column that has one."]
    if figures:
        lines += ["", "Columns that figures draw:"] + ["    %s (%s)" % (c["name"], c["type"]) for c in _columns(figures)]
        lines += ["", "Figures: " + ", ".join("trace.%s.figure(%r)" % (name.replace("-", "_"), f["name"]) for f in figures)]
    lines += ["", "Options:"] + ["    %s (%s)  %s%s" % (_argument(o), _kind(o), o["help"], _default(o)) for o in a["options"]]
    return "\n".join(lines if a["options"] else lines[:-2])


def _argument(option):
    """Returns the name of an option in Python; kvfate.program removes the last "_" of a name such as from_."""
    name = option["name"].replace("-", "_")
    return name + "_" if keyword.iskeyword(name) else name


def _columns(figures):
    return {c["name"]: c for f in figures for c in f["columns"]}.values()


def _kind(option):
    if option.get("words"):
        return " or ".join(option["words"])
    if option["type"] in ("whole", "real") and "min" in option and "max" in option:
        return "%s, %g to %g" % (option["type"], option["min"], option["max"])
    return option["type"]


def _default(option):
    given = option.get("default", option.get("absent"))
    return "" if given is None else "; default: %s" % given


class Analysis:
    """An analysis of one trace: call it for the table, .figure() for a figure.  It is trace.NAME; help(trace.NAME) lists its options."""

    def __init__(self, trace, name):
        self._trace, self.name = trace, name
        self.__doc__, self.__name__ = documentation(name), name.replace("-", "_")
        options = [inspect.Parameter(_argument(o), inspect.Parameter.KEYWORD_ONLY, default=None) for o in about(name)["options"]]
        self.__signature__ = inspect.Signature([*options, inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)])

    def __call__(self, **options):
        from .tables import table
        return table(self.name, self._trace, **options)

    def figure(self, name=None, **options):
        """Return the default figure of this analysis, or a figure by name (`kvfate list figures` lists them)."""
        from .tables import figure
        known = about(self.name)["figures"]
        if name is not None and name not in known:
            raise Error("%s has no figure %s; it has: %s" % (self.name, name, ", ".join(known) or "none"))
        return figure(self.name, self._trace, **{**({"figure": name} if name else {}), **options})

    def __repr__(self):
        return "<kvfate analysis %s of %s: call it for the table, .figure() draws it>" % (self.name, self._trace.path)


class Listed(list):
    """A list of the trace (its token texts, its heads) that is also the analysis of its name: trace.tokens[3], and trace.tokens() for the table."""

    def __init__(self, items, trace, name):
        super().__init__(items)
        self._trace, self._name = trace, name

    def __call__(self, **options):
        return Analysis(self._trace, self._name)(**options)

    def figure(self, name=None, **options):
        return Analysis(self._trace, self._name).figure(name, **options)
