#!/usr/bin/env python3
"""usage: check_benchmarks.py FOLDER [--answers TASKS.jsonl ANSWERS.jsonl]...

Compares the scorers of `kvfate tasks score` with the published programs, answer by answer.  FOLDER has checkouts of the public repositories
RULER, LongBench, InfiniteBench, MInference, grade-school-math, lm-evaluation-harness, math (Hendrycks) and prm800k; a missing one is
skipped with a message.  The Python that runs this needs the packages of these programs: rouge, rouge_score, jieba, fuzzywuzzy, nltk, sympy,
pylatexenc, tree_sitter_languages.

Made-up answers are derived from gold answers: empty, control bytes, other cases, repeats, near misses, boxes, code blocks and noise.  With
--answers, answers of a model (from `kvfate generate --jsonl`) to tasks of `kvfate tasks` are compared in the same way.  No published code is part of this project: the modules are loaded from FOLDER."""
import ast
import importlib.util
import json
import math
import os
import random
import re
import sys
import types

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
from kvfate import benchmark_scores as ours  # noqa: E402

COUNT = 200  # answers of each scorer
sys.setrecursionlimit(20000)  # the package rouge walks along a sentence by recursion


def stub(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


class RougeMetric:
    """The metric `rouge` of the package evaluate without its download: the scorer of rouge_score, as that metric calls it."""

    def compute(self, predictions, references, use_aggregator):
        from rouge_score import rouge_scorer
        scorer = rouge_scorer.RougeScorer(rouge_types=["rougeLsum"], use_stemmer=False)
        return {"rougeLsum": [(scorer.score_multi if isinstance(r, list) else scorer.score)(r, p)["rougeLsum"].fmeasure
                              for p, r in zip(predictions, references)]}


def load(folder, path, name, *, only=None, extra=None):
    """Loads a published module; with `only`, only these top-level functions and assignments, because the rest needs large packages."""
    path = os.path.join(folder, path)
    if not os.path.exists(path):
        print("skipped: %s is not there" % path)
        return None
    sys.path.insert(0, os.path.dirname(path))
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    if only:
        tree.body = [n for n in tree.body if getattr(n, "name", None) in only
                     or isinstance(n, ast.Assign) and {getattr(t, "id", "") for t in n.targets} & set(only)]
    module = types.ModuleType(name)
    module.__dict__.update({"re": re, **(extra or {})})
    exec(compile(tree, path, "exec"), module.__dict__)
    sys.path.pop(0)
    return module


# ---- made-up answers

VARIANTS = 61  # made-up answers around one gold answer

WORDS = "the a an red barn River mill Paris 17 2017 3,677 seated yes no unanswerable Paragraph is: answer: A B C. (D) x = \\frac12 #### 5.".split()


def variants(golds, rng, classes=()):
    """Yields answers around the gold ones."""
    golds = [str(g) for g in golds] or ["x"]
    while True:
        g, other = rng.choice(golds), rng.choice(WORDS)
        half = g[:max(1, len(g) // 2)]
        noise = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 12)))
        yield from rng.sample([
            "", " ", "\n\n", g, g.upper(), g.lower(), " " + g + ".", "\x00" + g + "\x1f", g[:1] + "\x07" + g[1:], half, g + g, (g + "\n") * 5, g + other, other + g,
            noise, noise + " " + g, g + "\n" + noise, "\n" + noise + "\n" + g, "The answer is: " + g, "answer is:" + g, "Answer: " + g, "option is " + g, "is:", "The correct answer is (%s)" % g, "**The correct answer is %s**" % g,
            "The correct answer is (B). The correct answer is A", "\\boxed{%s}" % g, "\\boxed{1} so \\boxed{%s}" % g, "\\boxed %s$" % g, "\\fbox{%s}" % g, "\\boxed{%s" % g, "$%s$" % g, "is $1$ or $%s$" % g,
            "#### %s" % g, "#### %s." % g, "#### $%s" % g, "#### 1\n#### %s" % g, g.replace(" ", ""), " ".join(g.split()[::-1]), ", ".join(golds), " ".join(golds[::-1]), "`%s`" % g, "# c\n%s\n" % g, "// c\n\n%s" % g,
            "```python\n%s\n```" % g, "```\n%s" % g, "Paragraph %s, not 13" % g, g.title(), g + "\u3002", "\u300a%s\u300b" % g, "x" * 300, g.replace("1", "7"), "".join(rng.sample(g, len(g))), " ".join(rng.sample([g, *classes], 1 + len(classes) // 2)),
            " and ".join(classes), ".".join([g, noise, g]), "...", ". . .", g.replace(".", ". "), noise.replace(" ", "\n"), half + " " + other + g[len(half):]], VARIANTS)


failures = 0


def compare(name, scorer, published, items, count=COUNT):
    """Compares `count` answers of made-up items (task, published arguments) of one scorer."""
    global failures
    rng = random.Random(name)
    score, seen, differ, raised, right = ours.scorer(scorer), 0, [], 0, 0
    streams = [(task, variants(task["answers"] + ([task["letter"]] if "letter" in task else []), rng, task.get("classes", ()))) for task in items]
    while seen < count:
        for task, stream in streams:
            if seen == count:
                break
            answer = next(stream)
            try:
                want = float(published(answer, task))
            except Exception:  # the published program stops here: a score of 0 is ours
                want, raised = 0.0, raised + 1
            got = score(answer, task)
            right += want > 0
            if not math.isclose(got, want, rel_tol=0, abs_tol=0):
                differ.append((answer, task["answers"], want, got))
            seen += 1
    failures += bool(differ)
    print("%-34s %-22s %3d answers, %3d above 0, %d stop the published program, %d differ" % (name, scorer, seen, right, raised, len(differ)))
    for x in differ[:4]:
        print("    ", x)


def task(*answers, **more):
    return {"answers": list(answers), **more}


RULER = {"ruler-all": [task("4812093"), task("ABCDE", "FGHIJ", "KLMNO", "PQRST", "UVWXY"), task("barn", "mill", "river")],
         "ruler-any": [task("Ana Ruiz", "ana"), task("3,677 seated", "3,677", "seated")]}
ENGLISH = [task("The red barn, by a river", "red barn"), task("Ana Ruiz"), task("yes"), task("unanswerable"), task("well-known 1990s band")]
CHINESE = [task("北京大学的图书馆", "图书馆"), task("二〇二四年，张三在上海工作。"), task("红色 barn")]
TEXTS = [task("The mill was built in 1830. It burned down twice. Nobody rebuilt the river mill."), task("Amy lost her keys. Bob found the keys in the barn", "Bob found Amy's keys.")]
CLASSES = ["Number", "Number of something", "Date", "Definition", "Definition of something", "a", "Reason", "Number of", "Lasting time of somethin"]
FUNCTIONS = [["area", "def area(w, h):\n    # the area\n    size = w * h\n    return size if size > 0 else 0"],
             ["edge", "def edge(w, h):\n    total = 2 * (w + h)\n    return total"],
             ["name", "def name(person):\n    first, last = person\n    return '%s %s' % (first, last)"]]
MATHS = ["\\frac{1}{2}", "42", "x=5", "\\sqrt{3}", "(1,2)", "\\text{even}", "0.5", "3/4", "1,000", "\\dfrac{\\pi}{6}", "2\\sqrt{5}", "[2,5)", "6\\text{ cm}", "90^\\circ", "\\$12.50", "10\\%", "-\\frac43", "x^2+1"]
SAME = ["\\frac12", "\\tfrac{1}{2}", ".5", "1/2", "\\boxed{x}", "5", "\\sqrt3", "\\sqrt", "\\frac", "\\frac1", "\\frac1\\frac", "(1, 2)", "[1,2]", "even", "1000", "\\frac{\\pi}{6}", "\\pi/6", "2\\sqrt5", "6", "6 cm", "90", "12.5", "12.50",
        "10", "0.10", "-4/3", "-\\frac{4}{3}", "1+x^2", "x^{2}+1", "2/4", "42.0", "4 2", "", "k = 42", "\\text{ }\\text{ }", "y=5", "5=x", "3 / 4", "0.75", "\\left(1,2\\right)", "\\!42", "{42}", "2^2^2", "10^99"]


def check_answers(folders, published):
    """Compares the answers of a model: folders of (tasks, answers)."""
    global failures
    for tasks, answers in folders:
        with open(tasks, encoding="utf-8") as f:
            known = {x["id"]: x["task"] for x in map(json.loads, f)}
        with open(answers, encoding="utf-8") as f:
            said = [json.loads(line) for line in f]
        differ, total = [], []
        for x in said:
            t = known[x["id"]]
            try:
                want = float(published[t["scorer"]](x["text"], t))
            except Exception:
                want = 0.0
            got = ours.scorer(t["scorer"])(x["text"], t)
            total.append(got)
            if got != want:
                differ.append((x["id"], want, got))
        failures += bool(differ)
        print("%-34s %-22s %3d answers of a model, mean %.4f, %d differ %s" % (os.path.basename(tasks), t["scorer"], len(said), sum(total) / len(total), len(differ), differ[:3]))


def ruler(folder, published):
    module = load(folder, "RULER/scripts/eval/synthetic/constants.py", "ruler_constants")
    clean = load(folder, "RULER/scripts/eval/evaluate.py", "ruler_evaluate", only=["postprocess_pred"])
    if not module or not clean:
        return
    for name, kind in (("ruler-all", "niah"), ("ruler-any", "qa")):
        metric = module.TASKS[kind]["metric_fn"]
        published[name] = lambda a, t, metric=metric: exact(metric, clean.postprocess_pred(a, {}), t["answers"])
        compare("RULER", name, published[name], RULER[name])


def exact(metric, answer, golds):
    """Returns the score of one item, k / len(golds), without the published rounding of a percentage to 2 digits."""
    score = metric([answer], [golds]) / 100
    k = next(k for k in range(len(golds) + 1) if abs(k / len(golds) - score) < 1e-4)
    return k / len(golds)


def longbench(folder, published):
    module = load(folder, "LongBench/LongBench/metrics.py", "metrics")
    evaluate = load(folder, "LongBench/LongBench/eval.py", "longbench_eval", only=["dataset2metric", "scorer"], extra=vars(module) if module else None)
    if not module:
        return
    sets = {"longbench-f1": ("hotpotqa", ENGLISH), "longbench-f1-zh": ("multifieldqa_zh", CHINESE), "longbench-rouge": ("gov_report", TEXTS), "longbench-rouge-zh": ("dureader", CHINESE),
            "longbench-classes": ("trec", [task("Number of something", classes=CLASSES), task("Number", classes=CLASSES), task("a", classes=CLASSES), task("Definition of something", classes=CLASSES)]),
            "longbench-retrieval": ("passage_retrieval_en", [task("Paragraph 3"), task("Paragraph 30")]), "longbench-count": ("passage_count", [task("17"), task("3")]),
            "longbench-code": ("lcc", [task("        return self.size"), task("x = 1"), task("")])}
    for name, (dataset, items) in sets.items():
        def score(answer, t, dataset=dataset):
            dataset = t.get("name", dataset)
            if dataset in ("trec", "triviaqa", "samsum", "lsht"):
                answer = answer.lstrip("\n").split("\n")[0]
            return max([0.0] + [evaluate.dataset2metric[dataset](answer, gold, all_classes=t.get("classes")) for gold in t["answers"]])
        published[name] = score
        compare("LongBench " + dataset, name, score, [{**t, "name": dataset} for t in items])
    for dataset, name, items in (("triviaqa", "longbench-f1", ENGLISH), ("samsum", "longbench-rouge", TEXTS), ("passage_retrieval_zh", "longbench-retrieval", [task("段落3"), task("段落12")]), ("qasper", "longbench-f1", ENGLISH)):
        compare("LongBench " + dataset, name, published[name], [{**t, "name": dataset} for t in items])
    answers = [next(variants(["red barn"], random.Random(i))) for i in range(40)]  # the mean of a data set, as eval.py rounds it
    want = evaluate.scorer("hotpotqa", answers, [["red barn"]] * 40, None)
    got = round(100 * sum(ours.longbench_f1(a, task("red barn")) for a in answers) / 40, 2)
    print("LongBench mean of 40: published %s, ours %s" % (want, got))
    global failures
    failures += want != got
    pred = load(folder, "LongBench/pred.py", "longbench2", only=["extract_answer"])
    published["longbench2-choice"] = lambda a, t: pred.extract_answer(a.strip()) == t["answers"][0]
    compare("LongBench v2", "longbench2-choice", published["longbench2-choice"], [task("C"), task("A"), task("B")])


def infinite(folder, published):
    stub("args", parse_args=None)
    stub("evaluate", load=lambda name: RougeMetric())
    module = load(folder, "InfiniteBench/src/compute_scores.py", "infinite")
    if not module:
        return
    options = [task("repack_carchive", letter="B"), task("Walking Georgie", letter="A"), task("D. Bus", letter="D")]
    sets = {"passkey": ("infinitebench-digits", [task("71432")]), "number_string": ("infinitebench-digits", [task("3000077442")]), "kv_retrieval": ("infinitebench-word", [task("5e6b7b90-710d-4953")]),
            "longdialogue_qa_eng": ("infinitebench-name", [task("ACE", "ACE ROTHSTEIN"), task("MR. BO")]), "code_run": ("infinitebench-integer", [task(4), task(-17)]),
            "math_find": ("infinitebench-number", [task(88), task(1.5), task(17)]), "math_calc": ("infinitebench-prefix", [task(1, 12, 7, 20), task(17, 17)]),
            "code_debug": ("infinitebench-debug", options), "longbook_choice_eng": ("infinitebench-choice", options), "longbook_qa_eng": ("infinitebench-f1", ENGLISH),
            "longbook_qa_chn": ("infinitebench-f1-zh", CHINESE), "longbook_sum_eng": ("infinitebench-summary", TEXTS)}

    def label(t, name):
        if name in ("code_debug", "longbook_choice_eng"):
            return [t["answers"][0], t["letter"]]
        return t["answers"][0] if name in ("passkey", "number_string", "kv_retrieval", "code_run", "math_find") else t["answers"]
    for name, (scorer, items) in sets.items():
        published[scorer] = lambda a, t, name=name: module.get_score_one(a, label(t, name), name, "m")
        compare("InfiniteBench " + name, scorer, published[scorer], items)
        infinite_results(folder, module, name, scorer)


def parsed(line):
    """Returns a line of JSON, or None if it is empty or damaged."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def infinite_results(folder, module, name, scorer):
    """Compares the answers of seven models that InfiniteBench published."""
    global failures
    base, seen, differ = os.path.join(folder, "InfiniteBench/results"), 0, []
    for model in sorted(os.listdir(base)):
        path = os.path.join(base, model, "preds_%s.jsonl" % name)
        if model == "gpt4" and name == "math_calc" or not os.path.exists(path):
            continue  # of gpt4 the first number is dropped
        with open(path, encoding="utf-8") as f:
            lines = [x for x in map(parsed, f) if x]
        for answer, gold in list(zip(module.get_preds(lines, name), module.get_labels(lines)))[:60 if "sum" in name else 400]:
            golds = gold if isinstance(gold, list) else [gold]
            golds = golds[0] if name == "math_calc" and isinstance(golds[0], list) else golds
            t = {"answers": golds[:1], "letter": golds[1]} if name in ("code_debug", "longbook_choice_eng") and len(golds) > 1 else {"answers": golds}
            try:
                want = module.get_score_one(answer, gold, name, "m")
            except Exception:
                want = 0.0
            got = ours.scorer(scorer)(answer, t)
            seen += 1
            if got != want:
                differ.append((model, answer[:60], str(golds)[:60], want, got))
    failures += bool(differ)
    print("    %d published answers of models, %d differ %s" % (seen, len(differ), differ[:3]))


def scbench(folder, published):
    module, repo = load(folder, "MInference/scbench/repo_qa_utils.py", "repo_qa_utils", only=[
        "FUNCTION_QUERY", "sanitize_output", "compute_function_similarity", "needle_evaluator", "Result"], extra=scbench_names()), None
    if not module:
        return
    repo = module
    sys.modules["repo_qa_utils"] = types.SimpleNamespace(compute_score=None)
    stub("args", parse_args=None)
    stub("evaluate", load=lambda name: RougeMetric())
    module = load(folder, "MInference/scbench/compute_scores.py", "scbench")
    sets = [("scbench_kv", "kv_retrieval", "scbench-contains", [task("v9-77"), task("17")]), ("scbench_vt", "scbench_vt", "scbench-fraction", [task("ABC", "DEF", "GHI"), task("X", "Y", "Z", "W", "V", "U", "T")]),
            ("scbench_qa_eng", "longdialogue_qa_eng", "scbench-any", [task("Ana Ruiz"), task("barn")]), ("scbench_many_shot", "scbench_many_shot", "scbench-any", [task("(A)"), task("yes", "no")]),
            ("scbench_qa_chn", "longbook_qa_chn", "scbench-f1-zh", CHINESE), ("scbench_choice_eng", "longbook_choice_eng", "scbench-choice", [task("Walking Georgie", letter="A"), task("barn", letter="C")]),
            ("scbench_mf", "math_find", "scbench-number", [task(88), task(1.5), task(17)]), ("scbench_passkey", "passkey", "scbench-digits", [task("71432")]),
            ("scbench_summary", "scbench_summary", "scbench-summary", TEXTS)]
    for name, kind, scorer, items in sets:
        def label(t, kind=kind):
            if "letter" in t:
                return [t["answers"][0], t["letter"]]
            return t["answers"][0] if kind in ("kv_retrieval", "math_find", "passkey") else t["answers"]
        published[scorer] = lambda a, t, kind=kind, label=label: module.get_score_one(a, label(t), kind, "m")
        compare("SCBench " + name, scorer, published[scorer], items)

    def found(answer, t):
        needles = [{"name": n, "needle": code} for n, code in t["functions"]]
        verdict, _, similarity = repo.needle_evaluator(answer, {"func_name": t["function"]}, needles, t["language"], False)
        return verdict == repo.Result.BEST_MATCH and similarity >= 0.8
    published["scbench-function"] = found
    items = [task(code, function=n, functions=FUNCTIONS, language="python") for n, code in FUNCTIONS]
    compare("SCBench scbench_repoqa", "scbench-function", found, items)
    blocks = [task("Here:\n```python\nx = 1\n%s\n```\n```\n%s\n```" % (code.replace("size", b), code), function=n, functions=FUNCTIONS, language="python") for n, code in FUNCTIONS for b in ("size", "s", "the size")]
    compare("SCBench code blocks", "scbench-function", found, blocks)


def scbench_names():
    import itertools
    from enum import Enum
    from typing import Dict, List, Tuple, Union
    try:
        from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
        from tree_sitter_languages import get_language, get_parser
    except ImportError as e:
        sys.exit("check_benchmarks.py: %s" % e)
    return dict(itertools=itertools, Enum=Enum, Dict=Dict, List=List, Tuple=Tuple, Union=Union, SmoothingFunction=SmoothingFunction, sentence_bleu=sentence_bleu,
                get_language=get_language, get_parser=get_parser)


def mathematics(folder, published):
    stub("torch")
    module = load(folder, "grade-school-math/grade_school_math/dataset.py", "gsm", only=["ANS_RE", "INVALID_ANS", "extract_answer", "is_correct"])
    numbers = [task("3*4=<<3*4=12>>12\n#### 12"), task("so\n#### 1,234"), task("#### -7"), task("#### 29"), task("#### 5")]
    said = ["29.00", "$29", "1234", "12 apples (3 each)", "\\boxed{12}", "It is 7, so done...", "#### 7.", "#### -7", "#### 1,234.", "12.", "costs $29.00.", "5", "5.0", "#### 12\n#### 13", "####12", "#### ٣", "1 2 12", "-7"]
    if module:
        published["gsm8k-original"] = lambda a, t: module.is_correct(a, {"answer": t["answers"][0]})
    flexible = harness_gsm8k(folder)
    published.update(flexible)
    for name in ("gsm8k-original", *flexible):
        if name in published:
            compare("GSM8K", name, published[name], numbers)
            compare("GSM8K numbers", name, published[name], [task(t["answers"][0]) for t in numbers], 50)
            pairs("GSM8K pairs", name, published[name], said, [t["answers"][0] for t in numbers])
    equal = load(folder, "math/modeling/math_equivalence.py", "math_equivalence")
    util = load(folder, "math/modeling/dataset/util.py", "math_util")
    if equal and util:
        def box(text):
            found = util.last_boxed_only_string(text)
            return found[len("\\boxed{"):-1] if found and found.startswith("\\boxed{") else None
        published["math-hendrycks"] = lambda a, t: equal.is_equiv(box(a), t["answers"][0])
        compare("MATH", "math-hendrycks", published["math-hendrycks"], [task(x) for x in MATHS])
        pairs("MATH pairs", "math-hendrycks", published["math-hendrycks"], ["\\boxed{%s}" % x for x in MATHS + SAME], MATHS + SAME[:-2])
        sys.path.insert(0, os.path.join(folder, "prm800k/prm800k"))
        grader = load(folder, "prm800k/prm800k/grading/grader.py", "grader")
        if grader:
            published["math-prm800k"] = lambda a, t: grader.grade_answer(box(a), t["answers"][0])
            compare("MATH PRM800K", "math-prm800k", published["math-prm800k"], [task(x) for x in MATHS])
            pairs("MATH PRM800K pairs", "math-prm800k", published["math-prm800k"], ["\\boxed{%s}" % x for x in MATHS + SAME if "^99" not in x], MATHS)
    aime = load(folder, "lm-evaluation-harness/lm_eval/tasks/aime/utils.py", "aime")
    if aime:
        published["aime-harness"] = lambda a, t: aime.process_results({"Answer": t["answers"][0]}, [a])["exact_match"]
        compare("AIME", "aime-harness", published["aime-harness"], [task("073"), task("385"), task("7")])
        pairs("AIME pairs", "aime-harness", published["aime-harness"], ["\\boxed{%s}" % x for x in SAME] + ["$%s$" % x for x in SAME] + ["\\boxed %s$ x" % x for x in SAME] + SAME, MATHS + ["x/2", "x/2 "])


def harness_gsm8k(folder):
    """Returns the two rules of the harness's gsm8k.yaml, by its filter and its metric."""
    base = os.path.join(folder, "lm-evaluation-harness")
    if not os.path.exists(os.path.join(base, "lm_eval/tasks/gsm8k/gsm8k.yaml")):
        print("skipped: lm-evaluation-harness is not there")
        return {}
    import numpy as np
    import yaml
    class Filter:
        pass
    stub("lm_eval"), stub("lm_eval.api"), stub("lm_eval.api.filter", Filter=Filter), stub("lm_eval.api.registry", register_filter=lambda name: lambda c: c)
    extraction = load(base, "lm_eval/filters/extraction.py", "extraction")
    metric = load(base, "lm_eval/api/metrics.py", "metrics_of", only=["exact_match_hf_evaluate"], extra={"np": np})
    with open(os.path.join(base, "lm_eval/tasks/gsm8k/gsm8k.yaml"), encoding="utf-8") as f:
        told = yaml.safe_load(f)
    how, rules = told["metric_list"][0], {}
    for entry in told["filter_list"]:
        filt = extraction.RegexFilter(**{k: v for k, v in entry["filter"][0].items() if k != "function"})
        rules["gsm8k-" + entry["name"].split("-")[0]] = lambda a, t, filt=filt: metric.exact_match_hf_evaluate(
            predictions=[filt.apply([[a]], [{}])[0][0]], references=[t["answers"][0]], regexes_to_ignore=how["regexes_to_ignore"],
            ignore_case=how["ignore_case"], ignore_punctuation=how["ignore_punctuation"])["exact_match"]
    return rules


def pairs(name, scorer, published, answers, golds):
    """Compares every answer with every gold answer."""
    global failures
    differ, right = [], 0
    for gold in golds:
        for answer in answers:
            try:
                want = float(published(answer, task(gold)))
            except Exception:
                want = 0.0
            got = ours.scorer(scorer)(answer, task(gold))
            right += want > 0
            if got != want:
                differ.append((answer, gold, want, got))
    failures += bool(differ)
    print("%-34s %-22s %3d pairs, %3d above 0, %d differ %s" % (name, scorer, len(answers) * len(golds), right, len(differ), differ[:4]))


# ---- prompts of the readers

def rows_of(name):
    """Returns made-up rows in the format of a task of InfiniteBench or SCBench."""
    asked = {"math_find": "The largest number of the list is: ", "code_run": "Please give me the exact value of func_7(-3)."}.get(name, "Who built {it}?")
    options = ["Al", "Bo", "Cy {x}", "Di"]
    return [{"id": i, "context": "The mill {stood} by the river.\n%d\n" % i, "input": asked, "options": options,
             "answer": ["Bo"] if "choice" in name or name == "code_debug" else [88] if name in ("math_find", "code_run") else [1, 3] if name == "math_calc" else ["Ana"]} for i in range(3)]


def made(benchmark, name, rows, repository, **more):
    """Returns the items of a reader for rows."""
    import tempfile
    from kvfate import benchmarks
    request = types.SimpleNamespace(**{"repository": repository, "raw": False, "family": None, "turns": False, **more})
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as f:
        f.write("".join(json.dumps(r) + "\n" for r in rows))
        f.flush()
        return list(benchmarks.READERS[benchmark](request, name, [f.name], None))


def equal(name, ours_, theirs):
    global failures
    same = sum(a == b for a, b in zip(ours_, theirs))
    failures += list(ours_) != list(theirs)
    print("%-34s %d of %d prompts equal" % (name, same, len(theirs)))
    for a, b in zip(ours_, theirs):
        if a != b:
            print("    ours %r\n    published %r" % (a, b))


def prompts(folder, published):
    """Compares the prompts of the readers with those of the published programs."""
    from kvfate import benchmarks
    repository = os.path.join(folder, "LongBench")
    with open(os.path.join(repository, "LongBench/config/dataset2prompt.json"), encoding="utf-8") as f:
        templates = json.load(f)
    for name, template in templates.items():
        rows = [{"input": "Who {x}?", "context": "C {y} %d" % i, "answers": ["Paragraph 3"], "length": 9, "all_classes": ["a"], "dataset": name} for i in range(3)]
        equal("LongBench " + name, [x.context + x.question for x in made("longbench", name, rows, repository)], [template.format(**r) for r in rows])
    rows = [{"question": " Q? ", **{"choice_" + x: " %s " % x for x in "ABCD"}, "answer": "B", "context": " text %d\n" % i} for i in range(3)]
    with open(os.path.join(repository, "prompts/0shot.txt"), encoding="utf-8") as f:
        template = f.read()
    def filled(r):
        text = template.replace("$DOC$", r["context"].strip()).replace("$Q$", r["question"].strip())
        for x in "ABCD":
            text = text.replace("$C_%s$" % x, r["choice_" + x].strip())
        return text
    equal("LongBench v2", [x.context + x.question for x in made("longbench2", "", rows, repository)], list(map(filled, rows)))
    repository = os.path.join(folder, "InfiniteBench")
    families = load(folder, "InfiniteBench/src/prompt.py", "prompt")
    sys.modules["prompt"] = families
    utils = load(folder, "InfiniteBench/src/eval_utils.py", "infinite_utils", only=["create_prompt", "MODEL_TO_PROMPT_TEMPLATE"], extra={
        "Path": str, **{k: v for k, v in vars(families).items() if k.endswith("_templates")}})
    for family, model in (("yarn_mistral", "yarn-mistral"), ("gpt4", "gpt4"), ("claude2", "claude2")):
        for name in benchmarks.INFINITEBENCH:
            if (family, name) in (("gpt4", "math_calc"), ("claude2", "longbook_qa_eng")):
                continue  # the published prompt is the expression after a chat; the published program stops
            rows = rows_of(name)
            equal("InfiniteBench %s %s" % (family, name), [x.context + x.question for x in made("infinitebench", name, rows, repository, family=family)],
                  [utils.create_prompt(dict(r), name, model, "") for r in rows])
    scbench_prompts(folder, benchmarks)


class Chat:
    """A chat template whose output can be read back as messages."""

    def apply_chat_template(self, messages, add_generation_prompt, tokenize):
        return "".join("<%s>%s</>" % (m["role"], m["content"]) for m in messages) + ("<assistant>" if add_generation_prompt else "")


def scbench_prompts(folder, benchmarks):
    utils = load(folder, "MInference/scbench/eval_utils.py", "scbench_utils", only=["create_scdq_prompt", "create_multiturn_prompt", "multiturn_templates", "multiturn_templates_scdq",
                                                                                    "multiturn_follow_up_templates", "multiturn_follow_up_templates_in_chat_tempate"])
    for name in benchmarks.SCBENCH:
        kinds = {"summary_with_needles": ("scbench_summary", "scbench_passkey"), "repoqa_and_kv": ("scbench_repoqa", "scbench_kv")}.get(name, (None,))
        rows = [{"id": 1, "context": "The {mill} stood.", "lang": "python", "repo": "r", "multi_turns": [
            {"input": "The %s number is: " % x, "answer": 88 if name == "mf" else "Bo" if "choice" in name else "v%s" % x, "options": ["Al", "Bo", "Cy", "Di"], "name": "f" + x, "task": kinds[i % len(kinds)]}
            for i, x in enumerate(("largest", "smallest", "second"))]}]
        if "choice" not in name:
            for t in rows[0]["multi_turns"]:
                del t["options"]
        full, repository = "scbench_" + name, os.path.join(folder, "MInference")
        first, *asked = utils.create_scdq_prompt(rows[0], full, None, False)["prompts"]
        equal("SCBench " + name, [(x.context, x.question) for x in made("scbench", name, rows, repository)], [(first, q) for q in asked])
        chat = utils.create_multiturn_prompt(rows[0], full, Chat(), True)["prompts"]
        items = made("scbench", name, rows, repository, turns=True)
        whole = ["".join("<%s>%s</>" % (role, text) for role, text in zip(("user", "assistant") * 3, (x.context + x.question, *x.history))) + "<assistant>" + x.answer_prefix for x in items]
        system = "<system></>"  # an empty system message comes before each published turn
        published_turns = ["".join(chat[:k + 1]).replace(system, "").replace("<assistant><assistant>", "<assistant>").replace("<assistant>This paper<assistant>", "<assistant>") for k in range(3)]
        equal("SCBench turns " + name, whole, published_turns)


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__.split("\n")[0])
    given, published = argv[2:], {}
    folders = [(given[i + 1], given[i + 2]) for i in range(0, len(given), 3)]
    for part in (prompts, ruler, longbench, infinite, scbench, mathematics):
        part(argv[1], published)
    check_answers(folders, published)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main(sys.argv)
