"""`kvfate tasks score`: scores of answers to the lines of `kvfate tasks`, by the published scorer that each line names."""
import functools
import math

from . import published, saved
from .benchmark_scores import scorer
from .commands import Usage
from .errors import Error, meant, shown
from .scorers import wilson

CUT = ("length", "context")  # reasons why an answer was cut off


@functools.lru_cache(maxsize=None)
def lines(paths, count=None):
    """Returns the lines of files of `kvfate tasks`, the first `count` of them; all belong to one task of one benchmark."""
    found, seen = [], set()
    for path in paths:
        for place, row in published.records(path):
            task, name = row.get("task"), row.get("id")
            if not isinstance(task, dict) or not isinstance(name, str) or type(row.get("n")) is not int:
                raise Error('%s: "id", "n" or "task" is missing, which `kvfate tasks` writes' % place)
            if not isinstance(task.get("answers"), list) or not task["answers"]:
                raise Error('%s: "task" has no "answers"' % place)
            scorer(task.get("scorer"))
            if name in seen:
                raise Error("%s: the id %s occurs twice" % (place, name))
            if found and (task.get("benchmark"), task.get("name")) != (found[0]["task"].get("benchmark"), found[0]["task"].get("name")):
                raise Error("%s: it belongs to another task than the lines before; use one file for each task" % place)
            seen.add(name)
            found.append(row)
    if not found or count and len(found) < count:
        raise Error("%s: there are %d tasks%s" % (", ".join(paths), len(found), ", and %d are asked for" % count if count else ""))
    return found[:count]


def tasks(path):
    """Returns {id: task} of a file of `kvfate tasks`."""
    return {row["id"]: row["task"] for row in lines((path,))}


def _named(cell):
    """Returns " of METHOD at BUDGET" for a message."""
    method, budget = cell
    return (" of " + method + (" at %d" % budget if budget >= 0 else "")) if method else ""


def _mean_budget(found):
    return round(sum(row.get("budget") or 0 for row in found.values()) / len(found))


def answers(paths, known):
    """Returns {(method, budget): {id: answer}} of files of answers; every task needs one answer of each method, budget and protocol.  A method is
    named with a budget in percent and with a question that was unknown; its budget is then the mean number of entries."""
    said = {}
    for path in paths:
        for place, row in published.records(path):
            name, percent = row.get("id"), row.get("budget_percent")
            method = str(row.get("method", "")) + (" %g%%" % percent if isinstance(percent, (int, float)) else "")
            method += ", question unknown" if row.get("question") == "unknown" else ""
            cell = method, -1 if percent else row.get("budget") or 0
            if name not in known:
                raise Error("%s: no task has the id %r" % (place, name))
            if not isinstance(row.get("text"), str) or type(cell[1]) is not int:
                raise Error('%s: an answer needs "text", and "budget" is an integer' % place)
            if name in said.setdefault(cell, {}):
                raise Error("%s: a second answer to %s%s" % (place, name, _named(cell)))
            said[cell][name] = row
    for cell, found in said.items():
        missing = [name for name in known if name not in found]
        if missing:
            raise Error("%d of %d tasks have no answer%s; the first is %s" % (len(missing), len(known), _named(cell), missing[0]))
    if not said:
        raise Error("%s: there are no answers" % paths[0])
    return {(method, _mean_budget(found) if budget < 0 else budget): found for (method, budget), found in said.items()}


def of(answer, task):
    """Returns the score of an answer in 0..1."""
    with published.shaped("the task", "the scorer %s" % task["scorer"]):
        return scorer(task["scorer"])(answer["text"], task)


def is_cut(answer):
    """Returns whether an answer reached its limit of tokens or the model's context."""
    return answer.get("stop") in CUT


def _value(task, by):
    if by is None:
        return ""
    if by not in task:
        raise Usage("--by %s: a task has no such member%s" % (by, meant(by, task)))
    return str(task[by])


def _items(known, said):
    rows = [(name, str(task.get("item", "")), task["scorer"], *cell, of(found[name], task), int(is_cut(found[name]))) for cell, found in said.items() for name, task in known.items()]
    names = (("id", "str"), ("item", "str"), ("scorer", "str"), ("method", "str"), ("budget", "int"), ("score", "real"), ("answer_cut", "int"))
    return [(name, kind, [r[i] for r in rows]) for i, (name, kind) in enumerate(names)]


def groups(known, by):
    """Returns {(benchmark, name, scorer, value of --by): ids}."""
    found = {}
    for name, task in known.items():
        found.setdefault((str(task.get("benchmark", "")), str(task.get("name", "")), task["scorer"], _value(task, by)), []).append(name)
    return found


def table(known, said, by=None):
    """Returns the columns of the table `scores`.  The score is a mean over tasks, its interval is Wilson's, which is wide enough for fractions too."""
    names = (("benchmark", "str"), ("name", "str"), ("scorer", "str"), ("by", "str"), ("method", "str"), ("budget", "int"), ("tasks", "int"), ("score", "real"),
             ("score_low", "real"), ("score_high", "real"), ("answers_cut", "real"), ("prompts_truncated", "int"))
    rows = []
    for key, ids in groups(known, by).items():
        for cell, found in said.items():
            mean = math.fsum(of(found[i], known[i]) for i in ids) / len(ids)
            stops = [found[i].get("stop") for i in ids]
            cut = float("nan") if None in stops else float(sum(s in CUT for s in stops))
            rows.append((*key, *cell, len(ids), mean, *wilson(mean * len(ids), len(ids)), cut, sum(bool(known[i].get("truncated")) for i in ids)))
    return [(name, kind, [r[i] for r in rows]) for i, (name, kind) in enumerate(names)]


def _told(columns):
    """Returns the lines for people."""
    c = {name: values for name, _, values in columns}
    lines = ["%-34s %-22s %-20s %6s %6s  %-14s" % ("benchmark", "scorer", "method", "tasks", "score", "95 %")]
    for i in range(len(c["tasks"])):
        name = ":".join(filter(None, (c["benchmark"][i], c["name"][i]))) + (" " + c["by"][i] if c["by"][i] else "")
        method = c["method"][i] + (" %d" % c["budget"][i] if c["budget"][i] else "")
        line = "%-34s %-22s %-20s %6d %6.2f  %.2f .. %.2f" % (name, c["scorer"][i], method or "-", c["tasks"][i], 100 * c["score"][i], 100 * c["score_low"][i], 100 * c["score_high"][i])
        cut = c["answers_cut"][i]
        notes = (["%d of %d answers reached the length limit" % (cut, c["tasks"][i])] if cut == cut and cut else []) + \
            (["%d of %d prompts lost their middle" % (c["prompts_truncated"][i], c["tasks"][i])] if c["prompts_truncated"][i] else [])
        lines += [line, *("    " + n for n in notes)]
    return lines


def run(request, operands):
    saved.check(request)
    known = tasks(operands[0])
    said = answers(operands[1:], known)
    if request.items and request.by:
        raise Usage("--items and --by exclude each other")
    if request.items:
        columns = _items(known, said)
        if saved.deliver(request, "score-items", {"interval": "none"}, columns):
            print("\n".join("%s %s %.4f" % row for row in zip(*(columns[i][2] for i in (0, 3, 5)))))
        return
    columns = table(known, said, request.by)
    if saved.deliver(request, "scores", {"interval": "95 %, Wilson", "by": request.by or "none"}, columns):
        print("\n".join(map(shown, _told(columns))))
