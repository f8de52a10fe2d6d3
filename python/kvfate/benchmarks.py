"""`kvfate tasks`: a public benchmark in its published format becomes lines for `kvfate run --jsonl`, `kvfate study` and `kvfate tasks score`.

A line has the prompt in two parts, "context" (or "text" without chat template) and "question", the beginning of the answer, the limit of its length, and an object "task": the
benchmark, the gold answers and the name of the published scorer (benchmark_scores.py).  Templates are read from a checkout of the public repository
of the benchmark (--repository).  docs/guide/benchmarks.md describes each reader."""
import contextlib
import json
import os
import re
import sys
from typing import NamedTuple

from . import files, progress, published, ruler
from .benchmark_scores import paragraph
from .commands import Usage
from .errors import Error, meant
from .math_answers import NO_ANSWER, strict_number
from .tokens import Tokenizer

LONGBENCH = {  # data set: scorer
    **dict.fromkeys(("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "triviaqa"), "longbench-f1"), "multifieldqa_zh": "longbench-f1-zh",
    **dict.fromkeys(("gov_report", "qmsum", "multi_news", "samsum"), "longbench-rouge"), **dict.fromkeys(("dureader", "vcsum"), "longbench-rouge-zh"),
    **dict.fromkeys(("trec", "lsht"), "longbench-classes"), **dict.fromkeys(("passage_retrieval_en", "passage_retrieval_zh"), "longbench-retrieval"),
    "passage_count": "longbench-count", **dict.fromkeys(("lcc", "repobench-p"), "longbench-code")}
LONGBENCH_E = ("qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "gov_report", "multi_news", "trec", "triviaqa", "samsum", "passage_count",
               "passage_retrieval_en", "lcc", "repobench-p")  # also with lengths that are spread evenly, named ..._e
WITHOUT_TEMPLATE = ("trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p")  # the authors give these without a chat template
INFINITEBENCH = {"passkey": "digits", "number_string": "digits", "kv_retrieval": "word", "code_run": "integer", "math_find": "number", "math_calc": "prefix",
                 "code_debug": "debug", "longbook_choice_eng": "choice", "longbook_qa_eng": "f1", "longbook_qa_chn": "f1-zh", "longdialogue_qa_eng": "name",
                 "longbook_sum_eng": "summary"}
FAMILIES = ("yarn_mistral", "gpt4", "claude2")  # of InfiniteBench's templates; kimi's upload a file instead
SCBENCH = {"kv": "contains", "prefix_suffix": "contains", "vt": "fraction", "qa_eng": "any", "qa_chn": "f1-zh", "choice_eng": "choice", "mf": "number",
           "many_shot": "any", "summary": "summary", "passkey": "digits", "repoqa": "function", "summary_with_needles": None, "repoqa_and_kv": None}
SUMMARY = "This paper"  # begins the answers of later turns of SCBench's summaries
SCBENCH_SPARE = 1000  # tokens of a prompt that the authors leave free for questions
GSM8K_STOPS, AIME_STOPS = ["Question:", "</s>", "<|im_end|>"], ["Question:", "</s>", "<|im_end|>", "<|eot_id|>"]
BOX = "\n\nReason step by step, and put the final answer in \\boxed{}."
NAMES = {"ruler": tuple(ruler.TASKS), "longbench": (*LONGBENCH, *(x + "_e" for x in LONGBENCH_E)), "longbench2": (), "infinitebench": tuple(INFINITEBENCH),
         "scbench": tuple(SCBENCH), "gsm8k": (), "math500": (), "aime": ()}
RULES = {"gsm8k": ("gsm8k-strict", "gsm8k-flexible", "gsm8k-original"), "math500": ("math-hendrycks", "math-prm800k"), "aime": ("aime-harness", "aime-integer")}


class Item(NamedTuple):
    """A prompt with its answer; context + question is the published prompt."""
    place: str  # in the data
    context: str
    question: str
    answers: list
    n: int  # maximum tokens of the answer
    scorer: str
    raw: bool = False
    answer_prefix: str = ""
    until: tuple = ()
    chance: float = 0.0  # score of guessing
    history: tuple = ()  # (user, assistant) texts of later turns: context + question is the first message of the user
    more: dict = {}  # further members of "task"


def parts(template, place, **values):
    """Returns a template as (text before the end of {context}, rest)."""
    head, found, tail = template.partition("{context}")
    if not found:
        raise Error("%s: the template has no {context}" % place)
    with published.shaped(place, "this template"):
        return head.format(**values) + values["context"], tail.format(**values)


def strings(place, value, name):
    """Returns a text or a list of texts as a list."""
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
        raise Error('%s: "%s" must be a text or a list of texts' % (place, name))
    return value


def field(place, row, name):
    """Returns a text of a row."""
    if not isinstance(row.get(name), str):
        raise Error('%s: "%s" is %s' % (place, name, "missing" if name not in row else "no text"))
    return row[name]


def number(place, value):
    """Returns an integer or a real, also from its text or from a list of one."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    if type(value) in (int, float):
        return value
    for kind in (int, float) if isinstance(value, str) else ():
        with contextlib.suppress(ValueError):
            return kind(value)
    raise Error('%s: "answer" is no number' % place)


def lettered(place, answer, options):
    """Returns (text, letter) of the right one of four options, as InfiniteBench and SCBench give it."""
    options = strings(place, options, "options")
    answer = strings(place, answer, "answer")
    if len(options) == 4 and len(answer) == 2 and answer[1] in "ABCD":
        return answer[0], answer[1]
    if len(options) != 4 or answer[0] not in options:
        raise Error('%s: "answer" must be one of four "options"' % place)
    return answer[0], "ABCD"[options.index(answer[0])]


# ---- readers: each yields the items of its files

def _ruler(request, name, paths, vocabulary):
    kind = ruler.needs(name)
    if len(paths) != (kind is not None):
        raise Usage("ruler:%s %s" % (name, "takes no file" if kind is None else "takes one file, %s" % {
            "essay": "the essays as RULER's script saves them", "squad": "the development part of SQuAD 2.0", "hotpotqa": "the development part of HotpotQA (distractor)"}[kind]))
    made = ruler.Ruler(name, vocabulary, request.tokens or 4096, request.seed, request.repository, paths, request.words, request.raw)
    for i, x in enumerate(made.samples(request.count or 500)):
        yield Item("ruler:%s: sample %d" % (name, i), x.context, x.question, x.answers, made.limit, "ruler-any" if made.kind == "qa" else "ruler-all", request.raw, x.answer_prefix)


def _rows(paths):
    for path in paths:
        yield from published.records(path)


def _longbench(request, name, paths, vocabulary):
    dataset = name[:-2] if name.endswith("_e") else name
    prompts, limits = (published.parsed(os.path.join(request.repository, "LongBench/config/dataset2%s.json" % x)) for x in ("prompt", "maxlen"))
    for place, row in _rows(paths):
        if str(row.get("dataset", dataset)).removesuffix("_e") != dataset:
            raise Error("%s: it belongs to the data set %s, not %s" % (place, row["dataset"], dataset))
        with published.shaped(place, "LongBench"):
            answers, length = strings(place, row["answers"], "answers"), int(row["length"])
            context, question = parts(prompts[dataset], place, context=field(place, row, "context"), input=field(place, row, "input"))
            more = {"item": str(row.get("_id", "")), "length": "0-4k" if length < 4000 else "4-8k" if length < 8000 else "8k+"}
            if LONGBENCH[dataset] == "longbench-classes":
                more["classes"] = strings(place, row["all_classes"], "all_classes")
            if LONGBENCH[dataset] == "longbench-retrieval" and not all(map(paragraph, answers)):
                raise Error("%s: a gold answer names no paragraph" % place)
            yield Item(place, context, question, answers, limits[dataset], LONGBENCH[dataset], request.raw or dataset in WITHOUT_TEMPLATE, more=more)


def _longbench2(request, name, paths, vocabulary):
    head, found, tail = published.text(request.repository, "prompts/0shot.txt").partition("$DOC$")
    if not found:
        raise Error("%s/prompts/0shot.txt: the template has no $DOC$" % request.repository)
    for place, row in _rows(paths):
        question = tail
        for mark, key in (("$Q$", "question"), *(("$C_%s$" % x, "choice_" + x) for x in "ABCD")):
            question = question.replace(mark, field(place, row, key).strip())
        if row.get("answer") not in tuple("ABCD"):
            raise Error('%s: "answer" must be A, B, C or D' % place)
        more = {key: str(row[key]) for key in ("difficulty", "length", "domain") if key in row}
        yield Item(place, head + field(place, row, "context").strip(), question, [row["answer"]], 128, "longbench2-choice", request.raw, chance=0.25, more={"item": str(row.get("_id", "")), **more})


def _infinitebench_values(place, name, row):
    """Returns the values of a template for a row, after the published rules."""
    values = {"context": field(place, row, "context" if "context" in row else "content"), "input": row.get("input", ""), "question": row.get("input", "")}
    if name == "code_run":
        call = re.search(r"func_[0-9]+\(-?[0-9]+\)", field(place, row, "input"))
        if not call:
            raise Error('%s: "input" calls no function func_N(M)' % place)
        values.update(func_call=call[0], func=call[0].split("(")[0])
    if name == "math_find":
        asked = re.search("The .+ of", field(place, row, "input"))
        if not asked:
            raise Error('%s: "input" asks for no number' % place)
        values["prefix"] = "What is %s in the following list?" % asked[0].lower()[:-3]
    if name in ("code_debug", "longbook_choice_eng"):
        values.update(("OPTION_" + x, o) for x, o in zip("ABCD", strings(place, row.get("options"), "options")))
    return values


def _infinitebench(request, name, paths, vocabulary):
    family = (request.family or FAMILIES[0]) + "_templates"
    template = published.constants(request.repository, "src/prompt.py", [family])[family].get(name)
    limit = published.constants(request.repository, "src/eval_utils.py", ["DATA_NAME_TO_MAX_NEW_TOKENS"])["DATA_NAME_TO_MAX_NEW_TOKENS"].get(name)
    if not isinstance(template, str) or not isinstance(limit, int):
        raise Error("%s: has no template or no limit of %s" % (request.repository, name))
    for place, row in _rows(paths):
        context, question = parts(template, place, **_infinitebench_values(place, name, row))
        answer, more = row.get("answer"), {"item": str(row.get("id", ""))}
        if name in ("code_debug", "longbook_choice_eng"):
            text, more["letter"] = lettered(place, answer, row["options"])
            answers = [text]
        elif name == "math_calc":
            answers = [number(place, x) for x in (answer[0] if isinstance(answer, list) and answer and isinstance(answer[0], list) else answer or [])]
        elif name in ("code_run", "math_find"):
            answers = [number(place, answer)]
        else:
            answers = strings(place, answer, "answer")
        if not answers:
            raise Error('%s: "answer" is empty' % place)
        yield Item(place, context, question, answers, limit, "infinitebench-" + INFINITEBENCH[name], request.raw, chance=0.25 if "letter" in more else 0.0, more=more)


def _scbench_turn(place, name, row, turn, scorer_name, functions):
    """Returns (answers, further members of the task) of a question."""
    answer = turn.get("answer")
    if scorer_name == "choice":
        text, letter = lettered(place, answer, turn.get("options"))
        return [text], {"letter": letter}
    if scorer_name == "number":
        return [number(place, answer)], {}
    if scorer_name == "function":
        return strings(place, answer, "answer"), {"function": field(place, turn, "name"), "language": field(place, row, "lang"), "functions": functions[field(place, row, "repo")]}
    answers = strings(place, answer, "answer")
    if isinstance(answer, str) and name in ("qa_chn", "many_shot"):
        answers = list(answer)  # the published scorer walks along the characters of such a text
    return answers, {}


def _scbench_templates(request, full):
    """Returns (limits, template of the context, template of the first question, template of later questions)."""
    names = ["DATA_NAME_TO_MAX_NEW_TOKENS", "multiturn_templates" if request.turns else "multiturn_templates_scdq", "multiturn_follow_up_templates_in_chat_tempate"]
    read = published.constants(request.repository, "scbench/eval_utils.py", names)
    limits, first, later = (read[k].get(full) for k in names)
    if not first or not later or not limits:
        raise Error("%s: has no template or no limit of %s" % (request.repository, full))
    if isinstance(first, tuple):
        return limits, *first, first[1]
    head, found, tail = first.partition("{context}")
    return (limits, head + found, tail, later) if request.turns else (limits, first, later, later)


def _scbench_values(place, name, row, turn):
    """Returns the values of a template for a question."""
    values = {"input": field(place, turn, "input"), "question": turn["input"]}
    if name == "mf":
        target = re.search("The .+ is", turn["input"])
        if not target:
            raise Error('%s: "input" asks for no number' % place)
        values["prefix"] = "What is %s?" % target[0].lower()[:-3]
    if "options" in turn:
        values.update(("OPTION_" + x, o) for x, o in zip("ABCD", strings(place, turn["options"], "options")))
    return values


def _scbench_row(request, name, place, row, templates, functions):
    """Yields the items of a context."""
    limits, first, asks, later = templates
    turns = [("%s, question %d" % (place, k + 1), turn) for k, turn in enumerate(row["multi_turns"])]
    values = [_scbench_values(where, name, row, turn) for where, turn in turns]
    if request.turns and name == "mf":  # the published chat gives all later questions the prefix of the last one
        values[1:] = [{**v, "prefix": values[-1]["prefix"]} for v in values[1:]]
    before = values[0] if request.turns else {**values[0], "prefix": values[0]["input"]}
    context, _ = parts(first, place, **{**before, "context": field(place, row, "context" if "context" in row else "input")})
    with published.shaped(place, "SCBench"):
        asked = [(later if k else asks).format(**v) for k, v in enumerate(values)]
        begin = SUMMARY if name == "summary" else ""
        golds = [(begin if k else "") + str(turn["answer"]) for k, (_, turn) in enumerate(turns)]
        spare = sum(limits.values()) * len(turns) // 2 if isinstance(limits, dict) else limits * len(turns)
    for k, (where, turn) in enumerate(turns):
        kind = str(turn.get("task", name) if isinstance(limits, dict) else name).removeprefix("scbench_")
        if SCBENCH.get(kind) is None:
            raise Error("%s: the task %r is not known%s" % (where, kind, meant(kind, SCBENCH)))
        answers, more = _scbench_turn(where, kind, row, turn, SCBENCH[kind], functions)
        more = {"item": str(row.get("id", "")), "turn": k + 1, "kind": kind, "spare": spare + (0 if request.turns else SCBENCH_SPARE), **more}
        history = tuple(x for i in range(k) for x in (golds[i], asked[i + 1])) if request.turns else ()
        yield Item(where, context, asked[0 if request.turns else k], answers, limits["scbench_" + kind] if isinstance(limits, dict) else limits, "scbench-" + SCBENCH[kind],
                   request.raw, chance=0.25 if "letter" in more else 0.0, more=more, history=history, answer_prefix=begin if history else "")


def _scbench(request, name, paths, vocabulary):
    templates = _scbench_templates(request, "scbench_" + name)
    rows, functions = list(_rows(paths)), {}
    for place, row in rows:
        turns = row.get("multi_turns")
        if not isinstance(turns, list) or not turns or not all(isinstance(t, dict) for t in turns):
            raise Error('%s: "multi_turns" must be a list of objects' % place)
        if "repoqa" in name:
            functions.setdefault(field(place, row, "repo"), []).extend([t["name"], t["answer"]] for t in turns if "name" in t and "answer" in t)
    for place, row in rows:
        yield from _scbench_row(request, name, place, row, templates, functions)


def _shots(request):
    """Returns the solved examples before each question of GSM8K: the first rows of --train."""
    if bool(request.shots) != bool(request.train):
        raise Usage("--shots N and --train FILE go together")
    rows = list(published.records(request.train))[:request.shots] if request.train else []
    if request.train and len(rows) < request.shots:
        raise Error("%s: has %d rows, and --shots asks for %d" % (request.train, len(rows), request.shots))
    return "".join("Question: %s\nAnswer: %s\n\n" % (field(p, r, "question"), field(p, r, "answer")) for p, r in rows)


def _gsm8k(request, name, paths, vocabulary):
    shots = _shots(request)
    for place, row in _rows(paths):
        answer = field(place, row, "answer")
        if strict_number(answer) == NO_ANSWER:
            raise Error('%s: "answer" has no number after ####' % place)
        yield Item(place, shots, "Question: %s\nAnswer:" % field(place, row, "question"), [answer], 256, RULES["gsm8k"][0], True, until=tuple(GSM8K_STOPS))


def _math500(request, name, paths, vocabulary):
    for place, row in _rows(paths):
        more = {"item": str(row.get("unique_id", "")), **{k: str(row[k]) for k in ("subject", "level") if k in row}}
        yield Item(place, "", field(place, row, "problem") + BOX, [field(place, row, "answer")], 2048, RULES["math500"][0], request.raw, more=more)


def _aime(request, name, paths, vocabulary):
    for place, row in _rows(paths):
        keys = {k.lower(): k for k in row}
        question, answer = keys.get("problem") or keys.get("question"), keys.get("answer")
        if not question or not answer:
            raise Error('%s: needs "problem" and "answer"' % place)
        gold = str(row[answer])
        if not re.fullmatch(r"\d{1,3}", gold, re.ASCII):
            raise Error('%s: "answer" is no integer from 0 to 999' % place)
        yield Item(place, "", "Question: %s\nAnswer:" % field(place, row, question), [gold], 32768, RULES["aime"][0], True, until=tuple(AIME_STOPS))


READERS = {"ruler": _ruler, "longbench": _longbench, "longbench2": _longbench2, "infinitebench": _infinitebench, "scbench": _scbench, "gsm8k": _gsm8k,
           "math500": _math500, "aime": _aime}
LOADED = ("ruler", "longbench", "longbench2", "infinitebench", "scbench")  # templates come from --repository


# ---- truncation

def cut(benchmark, item, most, vocabulary, shared):
    """Returns the item with the middle of its prompt removed, so that it has at most `most` tokens, by the rule of the benchmark; None if the prompt is short enough.

    LongBench keeps the first and last half and decodes them separately.  shared: only the context is truncated."""
    text = item.context if shared else item.context + item.question
    ids, half = vocabulary.encode(text), most // 2
    if len(ids) <= most:
        return None
    first, last = ids[:half], ids[len(ids) - (half if benchmark in ("longbench", "scbench") else most - half):]
    kept = vocabulary.decode(first, False) + vocabulary.decode(last, False) if benchmark == "longbench" else vocabulary.decode(first + last, False)
    if kept.startswith(" ") and not text.startswith(" "):
        kept = kept[1:]  # SentencePiece adds a space before a text
    if shared:
        return item._replace(context=kept)
    if half < 1 or not kept.endswith(item.question):
        raise Error("%s: %d tokens are too few to keep the question; give more --tokens" % (item.place, most))
    return item._replace(context=kept[:len(kept) - len(item.question)])


def line(request, benchmark, name, i, item, vocabulary):
    """Returns the object of a line."""
    limit, shorter = request.answer_tokens or item.n, None
    spare = item.more.get("spare", 0)
    if request.tokens and benchmark != "ruler":
        if request.tokens <= spare:
            raise Error("%s: the questions and answers take %d tokens; give more --tokens" % (item.place, spare))
        shorter = cut(benchmark, item, request.tokens - spare, vocabulary, benchmark == "scbench" and not request.turns)
    shown = shorter or item
    task = {"benchmark": benchmark, "name": name, "scorer": request.scorer or item.scorer, "answers": item.answers, "chance": item.chance,
            **{k: v for k, v in item.more.items() if k != "spare"},
            "prompt_tokens": vocabulary.count(shown.context + shown.question, shown.raw, shown.answer_prefix), "truncated": shorter is not None}
    if shown.history:
        messages = [{"role": "assistant" if k % 2 else "user", "content": text} for k, text in enumerate((shown.context + shown.question, *shown.history))]
        task["prompt_tokens"] = vocabulary.count_chat(messages, shown.answer_prefix)
    both = {"text" if shown.raw else "context": shown.context, **({} if shown.raw else {"join": ""}), "question": shown.question}
    prompt = {"messages": messages} if shown.history else both if shown.context and shown.question else {"text" if shown.raw else "prompt": shown.context + shown.question}
    optional = {"answer_prefix": shown.answer_prefix, "until": list(shown.until)}
    return {"id": "%s-%05d" % ("-".join(filter(None, (benchmark, name))), i), **prompt, "n": limit, **{k: v for k, v in optional.items() if v}, "task": task}


# ---- the command

def named(word):
    """Returns (benchmark, task) of BENCHMARK or BENCHMARK:TASK."""
    benchmark, colon, name = word.partition(":")
    if benchmark not in NAMES:
        raise Usage("the benchmark '%s' is not known%s; known are %s" % (benchmark, meant(benchmark, NAMES), ", ".join(NAMES)))
    names = NAMES[benchmark]
    if names and name not in names:
        raise Usage("%s; the tasks of %s are %s" % ("the task '%s' is not known%s" % (name, meant(name, names)) if colon else "give %s:TASK" % benchmark, benchmark, ", ".join(names)))
    if colon and not names:
        raise Usage("%s has no tasks; give '%s'" % (benchmark, benchmark))
    return benchmark, name


def checked(request, benchmark, paths):
    """Rejects options that do not belong to a benchmark."""
    if not request.output:
        raise Usage("no -o OUT.jsonl")
    if benchmark in LOADED and not request.repository:
        raise Usage("%s needs --repository DIR, a checkout of its public repository, whose templates are used" % benchmark)
    if benchmark == "ruler":
        request.words = request.words or _installed_words()
    elif not paths:
        raise Usage("%s needs the data files" % benchmark)
    for option, owners in (("repository", LOADED), ("words", ("ruler",)), ("family", ("infinitebench",)), ("shots", ("gsm8k",)), ("train", ("gsm8k",)), ("turns", ("scbench",)), ("scorer", tuple(RULES))):
        if getattr(request, option) and benchmark not in owners:
            raise Usage("--%s belongs to %s, not to %s" % (option, ", ".join(owners), benchmark))
    if request.turns and request.raw:
        raise Usage("--turns needs the chat template, which --raw leaves out")
    if request.seed is not None and benchmark != "ruler":
        raise Usage("--seed belongs to ruler, not to %s" % benchmark)
    request.seed = 42 if request.seed is None else request.seed
    if request.scorer and request.scorer not in RULES[benchmark]:
        raise Usage("--scorer %s: the scorers of %s are %s" % (request.scorer, benchmark, ", ".join(RULES[benchmark])))


def _installed_words():
    """Returns the folder of the word lists of the package wonderwords, which RULER uses; "" if it is not installed."""
    for folder in sys.path:
        at = os.path.join(folder, "wonderwords", "assets")
        if folder and os.path.exists(os.path.join(at, ruler.WORD_LISTS[0])):
            return at
    return ""


def run(request, operands):
    benchmark, name = named(operands[0])
    paths = operands[1:]
    checked(request, benchmark, paths)
    lines, truncated, most = [], 0, 0
    with Tokenizer(request.model) as vocabulary, progress.line("tasks"):
        progress.expect(request.count or 0, "prompts")
        for i, item in enumerate(READERS[benchmark](request, name, paths, vocabulary)):
            if request.count and i == request.count:
                break
            made = line(request, benchmark, name, i, item, vocabulary)
            truncated, most = truncated + made["task"]["truncated"], max(most, made["task"]["prompt_tokens"])
            lines.append(json.dumps(made, ensure_ascii=False) + "\n")
            if len(lines[-1].encode()) > published.MOST_LINE:
                raise Error("%s: the line has over %d MiB; give --tokens N to truncate it" % (item.place, published.MOST_LINE >> 20))
            progress.add(1)
    if len(lines) < (request.count or 1):
        raise Error("the files have %d prompts%s" % (len(lines), ", and %d are asked for" % request.count if request.count else ""))
    files.write(request.output, "".join(lines))
    print("%d prompts of up to %d tokens, of which %d lost their middle" % (len(lines), most, truncated), file=sys.stderr)
