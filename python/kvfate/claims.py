"""`kvfate claims`: judges the claims of a register by the tables of a folder, checks a register, or simulates the coverage of its intervals.

docs/studies/claims.md defines all of it."""
import math
import os
import sys

from . import claims_register, saved
from .commands import Usage
from .errors import Error, shown

# The columns of the table `claims` in their order: (name, kind).  The names in OF_CLAIM are keys of the claim, all others of its result.
COLUMNS = [*((name, "str") for name in ("id", "paper", "where", "verdict", "by_number", "table", "than")),
           *((name, "real") for name in ("value", "low", "high", "null", "null_high", "p", "q", "null_value", "difference", "difference_low",
                                         "difference_high", "difference_p", "i2")),
           *((name, "int") for name in ("units", "least_n", "documents", "left_out", "difference_units", "on_side")),
           *((name, "str") for name in ("null_check", "control", "fixed", "why", "claim"))]
OF_CLAIM = {"id", "paper", "where", "than", "null", "null_high", "least_n", "fixed"}


def columns(claims, results):
    """Returns the columns of the table `claims`, a row for each claim."""
    cast = {"str": str, "int": int, "real": float}

    def cell(name, c, r):
        if name in ("table", "than") and c.untestable:
            return ""
        return c.of.table if name == "table" else c.text if name == "claim" else getattr(c if name in OF_CLAIM else r, name)
    return [(name, kind, [cast[kind](cell(name, c, r)) for c, r in zip(claims, results)]) for name, kind in COLUMNS]


def _coverage(claims, results):
    from .claims_numbers import LAWS, coverage
    return [("id", "str", [c.id for c in claims]), ("units", "int", [r.units for r in results]),
            *((law, "real", [coverage(c, r.units, law) for c, r in zip(claims, results)]) for law in LAWS)]


def _number_told(c, r):
    """Returns the line about a number, its interval, its null and its units."""
    text = "%.4g" % r.value + (" (%.4g .. %.4g)" % (r.low, r.high) if not math.isnan(r.low) else "")
    text += ", claimed from %g to %g" % (c.null, c.null_high) if c.than == "between" else ", claimed %s %g" % (c.than, c.null)
    text += "".join(", %s %.2g" % (key, getattr(r, key)) for key in ("p", "q") if not math.isnan(getattr(r, key)))
    text += ", %d documents" % r.documents if r.documents >= 0 else ""
    text += ", %d %s" % (r.units, "clusters" if r.by_cluster else "units") if r.units > 1 else ""
    return text + (", %d left out" % r.left_out if r.left_out else "")


def _null_told(r):
    text = "null data: %s" % r.null_check
    if not math.isnan(r.difference):
        text += ", %.4g; difference %+.4g" % (r.null_value, r.difference)
        if not math.isnan(r.difference_low):
            text += " (%+.4g .. %+.4g), p %.2g" % (r.difference_low, r.difference_high, r.difference_p)
        text += ", %d pairs" % r.difference_units if r.difference_units else ""
    return text + "; matched control: %s" % r.control


def told(c, r):
    """Returns the lines about a claim for people."""
    lines = ["%-16s %s (%s, %s)" % (r.verdict, c.id, c.paper, c.where), "    " + c.text]
    defined = not math.isnan(r.value)
    lines += ["    " + _number_told(c, r)] if defined else []
    lines += ["    " + r.why] if r.why else []
    lines += ["    " + _null_told(r)] if defined else []
    if defined and r.on_side >= 0 and r.units > 1:
        lines.append("    %d of %d %s on the claimed side%s" % (
            r.on_side, r.units, c.cluster if r.by_cluster else "units", "" if math.isnan(r.i2) else ", I^2 %.2f" % r.i2))
    return lines


def _check(claims):
    """Prints the tables and columns that a register names and no command makes.  Returns the exit status."""
    wrong = claims_register.missing(claims)
    for line in wrong:
        print(shown(line), file=sys.stderr)
    untestable = sum(c.untestable is not None for c in claims)
    print("%d claims: %d to be judged, %d untestable here" % (len(claims), len(claims) - untestable, untestable))
    return 1 if wrong else 0


def run(request, operands):
    if request.check and operands:
        raise Usage("--check takes no folder")
    if not request.check and not operands:
        raise Usage("a folder of tables is missing; usage: kvfate claims RESULTS_FOLDER [options]")
    claims = claims_register.read(request.register)
    if request.check:
        return _check(claims)
    saved.check(request)
    if not os.path.isdir(operands[0]):
        raise Error("%s is no folder" % operands[0])
    from . import claims_judge
    from .claims_numbers import REPLICATES
    results = claims_judge.judge_all(claims, claims_judge.Folder(operands[0]))
    if request.coverage:
        request.output = request.output or (None if request.json else "-")
        saved.deliver(request, "coverage", {}, _coverage(claims, results))
        return 0
    meta = {"replicates": REPLICATES, "interval": "95 %, of the table, Student's t, BCa or Wilson's; q by Benjamini and Hochberg"}
    if saved.deliver(request, "claims", meta, columns(claims, results)):
        for c, r in zip(claims, results):
            print("\n".join(shown(line) for line in told(c, r)))
        print(", ".join("%d %s" % (n, verdict) for verdict, n in claims_judge.counted(results).items()))
    return 0
