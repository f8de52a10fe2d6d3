"""The page of a study: every number in it is copied from a table that the program wrote, and every figure is the program's."""
import html
import os

from . import files

SHOWN = ("id", "verdict", "models", "value", "low", "high", "units", "null_check", "difference", "difference_low", "difference_high", "i2", "tau", "predicted_low", "predicted_high", "method", "budget", "budget_percent", "window", "right", "right_low", "right_high", "floor", "to_full", "to_full_low", "to_full_high", "above", "below", "p_full", "kl", "kl_low", "kl_high", "nll", "top1_agree", "kv_mean", "kv_peak", "answer_tokens", "kept", "answers", "answers_cut", "marked")
STYLE = """body{font:15px/1.5 Lato,"Helvetica Neue",Arial,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}figure{margin:1em 0;display:inline-block}img{max-width:100%}.note{color:#8a3b00}nav a{margin-right:1em}"""


def _cell(text):
    try:
        value = float(text)
    except ValueError:
        return html.escape(text)
    return "" if value != value else "%.4g" % value


def _table(names, rows):
    shown = [c for c in SHOWN if c in names] + [c for c in names if c.startswith("pass_") or c.endswith(".verdict")]
    head = "".join("<th>%s</th>" % html.escape(c) for c in shown)
    body = "".join("<tr>%s</tr>\n" % "".join("<td>%s</td>" % _cell(r[names.index(c)]) for c in shown) for r in rows)
    return "<table><thead><tr>%s</tr></thead>\n<tbody>\n%s</tbody></table>" % (head, body)


def _facts(head):
    known = dict(line[2:].split(": ", 1) for line in head if ": " in line)
    return "; ".join("%s: %s" % (k, known[k]) for k in ("model", "model_hash", "question", "precision", "kv_type", "interval", "ranking", "benchmark", "scorer", "prompts", "frozen") if k in known), known


def _section(study, job, rows_of):
    head, names, rows = rows_of(study.at(job, ".tsv"))
    facts, known = _facts(head)
    near = os.path.join("jobs", job.name)
    pictures = [y for y in ("right", "kl", "claims") if os.path.exists(study.at(job, "-%s.svg" % y))]
    notes = [known[k] for k in ("ranking", "truncated", "so_far") if k in known and (k != "ranking" or known[k].startswith("none"))]
    note = "".join('<p class="note">%s</p>' % html.escape(x) for x in notes)
    if known.get("unequal_memory"):
        note += '<p class="note">Equal budgets are not equal memory here. Entries of a head: %s.</p>' % html.escape(known["unequal_memory"])
    return """<h2 id="%s">%s</h2>
<p>%d texts; <a href="%s.tsv">TSV</a>. %s</p>
%s%s
%s""" % (html.escape(job.name), html.escape(job.name), job.count, html.escape(near), html.escape(facts), note, _table(names, rows),
         "\n".join('<figure><img src="%s-%s.svg" alt="%s, %s"></figure>' % (html.escape(near), y, y, html.escape(job.name))
                   for y in pictures))


def _over_models(text, seed, at, rows_of):
    """Returns the section of the verdicts over models of a text of claims."""
    head, names, rows = rows_of(at + ".tsv")
    name, known = os.path.basename(at), _facts(head)[1]
    return """<h2>%s over models, seed %d</h2>
<p><a href="%s.tsv">TSV</a>. %s; freeze: %s</p>
%s
<figure><img src="%s.svg" alt="%s over models"></figure>""" % (
        html.escape(text.name), seed, name, html.escape(known.get("models", "")), html.escape(known.get("frozen", "")), _table(names, rows), name, html.escape(text.name))


def write_page(study, rows_of, over_models=()):
    plan = study.plan
    title = os.path.splitext(os.path.basename(plan.path))[0]
    with open(plan.path, encoding="utf-8") as f:
        text = f.read()
    page = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>%s</title><style>%s</style></head><body>
<h1>%s</h1>
<p>%d models, %d methods, budgets %s, %d texts, %d seeds. All rows: <a href="study.tsv">study.tsv</a>, <a href="study.sqlite">study.sqlite</a>.</p>
<nav>%s</nav>
%s
<h2>The study file</h2>
<pre>%s</pre>
</body></html>
""" % (html.escape(title), STYLE, html.escape(title), len(plan.models), len(plan.methods), ", ".join(map(str, plan.budgets)), len(plan.texts),
       len(plan.seeds), " ".join('<a href="#%s">%s</a>' % (html.escape(j.name), html.escape(j.name)) for j in study.jobs),
       "\n".join([*(_over_models(*x, rows_of) for x in over_models), *(_section(study, j, rows_of) for j in study.jobs)]), html.escape(text))
    files.write(os.path.join(plan.out, "index.html"), page)
