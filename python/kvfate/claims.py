"""`kvfate claims`: judges the claims of a register by the tables of one folder or, over models, of several.  It also checks a register, simulates the
coverage of its intervals, and freezes the inputs of a run.

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
           *((name, "str") for name in ("null_check", "control", "fixed", "why", "title", "claim"))]
# Columns of a table over models, and those of each model, whose names begin with that of the model's folder.
OVER = [("models", "int"), *((name, "real") for name in ("tau", "tau_low", "tau_high", "predicted_low", "predicted_high"))]
OF_MODEL = ("verdict", "value", "low", "high", "p", "q", "null_value", "difference", "difference_low", "difference_high", "units", "null_check", "control", "why")
OF_CLAIM = {"id", "paper", "where", "than", "null", "null_high", "least_n", "fixed", "title"}


CAST = {"str": str, "int": int, "real": float}


def columns(claims, results):
    """Returns the columns of the table `claims`, a row for each claim."""
    def cell(name, c, r):
        if name in ("table", "than") and c.untestable:
            return ""
        return c.of.table if name == "table" else c.text if name == "claim" else getattr(c if name in OF_CLAIM else r, name)
    return [(name, kind, [CAST[kind](cell(name, c, r)) for c, r in zip(claims, results)]) for name, kind in COLUMNS]


def columns_over(claims, over, names, results):
    """Returns the columns of the table `claims` over models: the verdicts over models, then those of each model side by side.

    over: [claims]; names: of the models' folders; results: [models][claims]."""
    made = columns(claims, over) + [(name, kind, [CAST[kind](getattr(r, name, 0 if kind == "int" else math.nan)) for r in over]) for name, kind in OVER]
    kinds = dict(COLUMNS)
    return made + [("%s.%s" % (name, key), kinds[key], [CAST[kinds[key]](getattr(r, key)) for r in of_model])
                   for name, of_model in zip(names, results) for key in OF_MODEL]


DIFFERENT = 3  # exit status: the inputs of tables differ from the frozen ones


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


def told_over(c, r, names, results):
    """Returns the lines about a claim over models: the verdict over models, then that of each model."""
    few = r.verdict == "undecided" and r.models and math.isnan(r.value)
    lines = ["%-16s %s (%s, %s)" % (r.verdict + (": %d famil%s" % (r.units, "y" if r.units == 1 else "ies") if few else ""), c.id, c.paper, c.where), "    " + c.text]
    defined = not math.isnan(r.value)
    if defined:
        lines.append("    " + _number_told(c, r).replace(" units", " families") + " of %d models" % r.models)
    if not math.isnan(r.tau):
        text = "    between families: tau %.4g" % r.tau
        text += "" if math.isnan(r.tau_low) else " (%.4g .. %.4g), I^2 %.2f" % (r.tau_low, r.tau_high, r.i2)
        lines.append(text + "; a further family on these texts: %.4g .. %.4g" % (r.predicted_low, r.predicted_high))
    lines += ["    " + r.why] if r.why else []
    lines += ["    " + _null_told(r).replace(" pairs", " families")] if defined else []
    for name, x in zip(names, results):
        number = "; " + _number_told(c, x) if not math.isnan(x.value) else ""
        lines.append("    %s: %s%s%s" % (name, x.verdict, number, "; " + x.why if x.why else ""))
    return lines


def _over(claims, folders):
    """Returns (names of the folders, their models as texts, results over models, results of each model)."""
    from . import claims_judge, claims_models
    names = [os.path.basename(os.path.abspath(f.path)) for f in folders]
    if len(set(names)) < len(names):
        raise Error("two folders have the name %s, which becomes the name of columns; rename one" % next(n for n in names if names.count(n) > 1))
    models = [f.identity(claims) for f in folders]
    for i, m in enumerate(models):
        same = next((k for k in range(i) if models[k]["model_hash"] == m["model_hash"]), None)
        if same is not None:
            raise Error("%s and %s are of one model (%s)" % (folders[same].path, folders[i].path, m["model_hash"]))
    results = [claims_judge.judge_all(claims, f) for f in folders]
    over = claims_models.judge_all_over(claims, results, [m["family"] for m in models])
    return names, ["%s = %s (%s)" % (n, m["model"], m["family"]) for n, m in zip(names, models)], over, results


def _frozen(folders, register):
    """Prints what differs from the freezes of folders.  Returns (the freezes as one text, exit status)."""
    from . import claims_frozen
    states = [claims_frozen.judged(f.path, [t for t in f.known.values() if t is not None], register) for f in folders]
    wrong = [sentence for _, sentence in states if sentence]
    for sentence in wrong:
        print("kvfate claims: " + shown(sentence), file=sys.stderr)
    state = " ".join(dict.fromkeys(state for state, _ in states))
    return state + (" (inputs differ)" if wrong else ""), DIFFERENT if wrong else 0


def _misplaced(request):
    """Rejects options of `claims freeze` in other calls."""
    for name in ("texts", "model", "input", "seed"):
        if getattr(request, name):
            raise Usage("--%s belongs to kvfate claims freeze" % name)


def run(request, operands):
    if operands[:1] == ["freeze"]:
        from . import claims_frozen
        if operands[1:] or request.check or request.coverage:
            raise Usage("usage: kvfate claims freeze --texts FOLDER --model FILE... -o NAME.json [--input FILE...] [--seed N] [--register FILE]")
        claims_register.read(request.register)
        return claims_frozen.freeze(request, claims_register.path_of(request.register))
    _misplaced(request)
    if request.check and operands:
        raise Usage("--check takes no folder")
    if not request.check and not operands:
        raise Usage("a folder of tables is missing; usage: kvfate claims RESULTS_FOLDER... [options]")
    if request.coverage and len(operands) > 1:
        raise Usage("--coverage takes one folder")
    claims = claims_register.read(request.register)
    if request.check:
        return _check(claims)
    saved.check(request)
    for path in operands:
        if not os.path.isdir(path):
            raise Error("%s is no folder" % path)
    from . import claims_judge
    from .claims_numbers import REPLICATES
    folders = [claims_judge.Folder(path) for path in operands]
    if request.coverage:
        request.output = request.output or (None if request.json else "-")
        saved.deliver(request, "coverage", {}, _coverage(claims, claims_judge.judge_all(claims, folders[0])))
        return 0
    meta = {"replicates": REPLICATES, "interval": "95 %, of the table, Student's t, BCa or Wilson's; q by Benjamini and Hochberg"}
    if len(folders) > 1:
        names, models, results, each = _over(claims, folders)
        made = columns_over(claims, results, names, each)
        meta.update(interval="95 % over families of models, Student's t; q by Benjamini and Hochberg", models="; ".join(models))
        lines = [told_over(c, r, names, of_claim) for c, r, of_claim in zip(claims, results, zip(*each))]
    else:
        results = claims_judge.judge_all(claims, folders[0])
        made = columns(claims, results)
        lines = [told(c, r) for c, r in zip(claims, results)]
    meta["frozen"], status = _frozen(folders, claims_register.path_of(request.register))
    if saved.deliver(request, "claims", meta, made):
        for line in (line for one in lines for line in one):
            print(shown(line))
        print(", ".join("%d %s" % (n, verdict) for verdict, n in claims_judge.counted(results).items()) + "; freeze: " + meta["frozen"])
    return status
