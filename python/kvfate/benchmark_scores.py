"""Scores of answers by the published rules of benchmarks: RULER, LongBench, InfiniteBench, SCBench, GSM8K, MATH and AIME.

`SCORERS` maps a name to a function (answer, task) -> score in 0..1.  `task` is the member "task" of a line that `kvfate tasks` wrote:
`answers` has the gold answers, and some scorers need more members (`classes`, `letter`, `functions`).  A rule is kept with its faults, so that
scores equal those of the published program.  Where that program stops with an exception, the score is 0.  docs/guide/benchmarks.md lists
the rules and their sources."""
import contextlib
import difflib
import re
import string

from . import math_answers as m
from . import overlap
from .errors import Error, meant, needing

FIRST_LINE = ("trec", "triviaqa", "samsum", "lsht")  # data sets of LongBench of which the first line of an answer counts
CHINESE_MARKS = "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
WORD_MARKS = "\n:\"'.,?!{}"  # separate words for InfiniteBench
BLEU_LEAST = 0.8  # of a function that counts as found (RepoQA)


# ---- RULER

def _ruler(answer, task):
    """Returns for each gold answer whether it occurs in the answer, without regard to case."""
    text = re.sub("[\x00-\x1f]", "\n", answer.strip()).strip().lower()
    return [gold.lower() in text for gold in task["answers"]]


def ruler_all(answer, task):
    """Returns the fraction of gold answers that occur in the answer."""
    found = _ruler(answer, task)
    return sum(found) / len(found)


def ruler_any(answer, task):
    """Returns 1 if a gold answer occurs in the answer."""
    return float(any(_ruler(answer, task)))


# ---- words

def english_words(text):
    """Returns the words of a text in lower case, without ASCII punctuation and articles."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def chinese_text(text):
    """Returns a text in lower case without ASCII and Chinese punctuation and white space."""
    return "".join("".join(c for c in text.lower() if c not in string.punctuation and c not in CHINESE_MARKS).split())


def segmented(text):
    """Returns the words of a Chinese text as the package jieba finds them."""
    with needing("a scorer of Chinese words", "jieba"):
        import jieba
    jieba.setLogLevel(60)
    return list(jieba.cut(text, cut_all=False))


def _chinese_words(text):
    return [w for w in map(chinese_text, segmented(text)) if w]


# ---- LongBench

def _best(answer, task, score):
    """Returns the largest score over the gold answers of LongBench, at least 0."""
    if task.get("name") in FIRST_LINE:
        answer = answer.lstrip("\n").split("\n")[0]
    return max([0.0, *(score(answer, gold) for gold in task["answers"])])


def longbench_f1(answer, task):
    """Returns the token F1."""
    return _best(answer, task, lambda a, gold: overlap.f1(english_words(a), english_words(gold)))


def longbench_f1_zh(answer, task):
    """Returns the F1 of Chinese words."""
    return _best(answer, task, lambda a, gold: overlap.f1(_chinese_words(a), _chinese_words(gold)))


def longbench_rouge(answer, task):
    """Returns ROUGE-L."""
    return _best(answer, task, overlap.rouge_l)


def longbench_rouge_zh(answer, task):
    """Returns ROUGE-L of Chinese words."""
    return _best(answer, task, lambda a, gold: overlap.rouge_l(" ".join(segmented(a)), " ".join(segmented(gold))))


def longbench_classes(answer, task):
    """Returns 1 over the number of class names in the answer, if the gold class is one of them; class names inside the gold name are dropped.

    The published loop deletes from the list that it walks along, and so skips the name after a deleted one."""
    def score(a, gold):
        found, i = [c for c in task["classes"] if c in a], 0
        while i < len(found):
            if found[i] in gold and found[i] != gold:
                found.remove(found[i])
            i += 1
        return 1.0 / len(found) if gold in found else 0.0
    return _best(answer, task, score)


def _equal_numbers(text, gold):
    """Returns the fraction of the runs of digits of a text that equal a gold number, as texts."""
    found = re.findall(r"\d+", text)
    return sum(x == gold for x in found) / len(found) if found else 0.0


def longbench_count(answer, task):
    """Returns the fraction of numbers that are right."""
    return _best(answer, task, _equal_numbers)


def longbench_retrieval(answer, task):
    """Returns the fraction of numbers that are the paragraph of the gold answer, "Paragraph N" or its Chinese form."""
    return _best(answer, task, lambda a, gold: _equal_numbers(a, paragraph(gold)))


def paragraph(gold):
    """Returns the number of a paragraph in a gold answer; None if it has none."""
    found = re.search(r"(?:Paragraph |段落)(\d+)", gold)
    return found and found[1]


def longbench_code(answer, task):
    """Returns the similarity of the first line without a backtick, a # or // to the gold line, in steps of 0.01.

    It is the ratio of Python's difflib, which the package fuzzywuzzy uses without python-Levenshtein."""
    def score(a, gold):
        line = next((x for x in a.lstrip("\n").split("\n") if not any(mark in x for mark in ("`", "#", "//"))), "")
        if line == gold:
            return 1.0
        return round(100 * difflib.SequenceMatcher(None, line, gold).ratio()) / 100 if line and gold else 0.0
    return _best(answer, task, score)


def longbench2_choice(answer, task):
    """Returns whether "The correct answer is (X)", or else the form without parentheses, has the gold letter; asterisks do not count."""
    text = answer.strip().replace("*", "")
    found = re.search(r"The correct answer is \(([A-D])\)", text) or re.search("The correct answer is ([A-D])", text)
    return float(found is not None and found[1] == task["answers"][0])


# ---- InfiniteBench and SCBench

def _spaced(text, marks=WORD_MARKS):
    for mark in marks:
        text = text.replace(mark, " ")
    return text


def first_digits(answer, task):
    """Returns whether the first run of digits is the gold number, as texts."""
    found = re.search("[0-9]+", answer)
    return float((found[0] if found else "") == task["answers"][0])


def gold_is_word(answer, task):
    """Returns whether the gold answer is a word of the answer."""
    return float(task["answers"][0] in _spaced(answer).split())


def name_is_word(answer, task):
    """Returns whether the first gold name is a word of the answer in capitals."""
    return float(task["answers"][0] in [w.upper() for w in _spaced(answer.strip()).split()])


def last_integer(answer, task):
    """Returns whether the last word is the gold integer."""
    words = _spaced(answer.strip(), "\n.`'\":").split()
    with contextlib.suppress(ValueError):
        return float(bool(words) and int(words[-1]) == task["answers"][0])
    return 0.0


def _first_number(answer, task, whole):
    """Compares the first number with the gold one; `whole` converts it if the gold one is an integer."""
    gold, found = task["answers"][0], re.search(r"\d+\.\d+|\d+", answer)
    with contextlib.suppress(ValueError, OverflowError):
        return float(found is not None and (whole if type(gold) is int else float)(found[0]) == gold)
    return 0.0


def first_number(answer, task):
    """Returns whether the first number is the gold one; a number with decimals is not an integer."""
    return _first_number(answer, task, int)


def first_number_cut(answer, task):
    """Returns whether the first number is the gold one; decimals are cut off if the gold one is an integer."""
    return _first_number(answer, task, lambda text: int(float(text)))


def correct_prefix(answer, task):
    """Returns the length of the prefix of runs of digits that equals that of the gold numbers, over the number of gold numbers."""
    gold, right = task["answers"], 0
    for found, want in zip(re.findall("[0-9]+", answer), gold):
        if (found.lstrip("0") or "0") != str(want):
            break
        right += 1
    return right / len(gold)


def _after(text, prefix):
    """Returns the text after a prefix and one more character; None if the text ends with the prefix."""
    rest = text[text.find(prefix) + len(prefix):]
    return rest[1:] if rest else None


def code_debug(answer, task, prefixes=("answer is:", "is:", "answer:", "correct option is:")):
    """Returns whether the answer begins with the gold letter, or names it or the gold function after one of some prefixes."""
    text, name, letter = answer.strip(), task["answers"][0], task["letter"]
    if text[:2] in (letter + ".", letter + ":"):
        return 1.0
    for mark in ("\n", "`", "'", '"', "-", "*", "Option", "option"):
        text = text.replace(mark, " ")
    text = re.sub("  +", " ", text)
    prefix = next((p for p in prefixes if p in text), None)
    rest = prefix and _after(text, prefix)
    return float(rest is not None and prefix is not None and rest.startswith((letter, name)))


def choice_letter(answer, task):
    """Returns whether the first letter A to D is the gold letter, or the answer names the gold option, by InfiniteBench's rule."""
    text, golds = answer.strip(), (task["answers"][0], task["letter"])
    if not text:
        return 0.0
    if text[0] in "ABCD":
        return float(text[0] in golds)
    if text in golds:
        return 1.0
    text = re.sub("  +", " ", _spaced(text, "\n\"'.,?!{}"))
    for prefix in ("answer is:", "answer:", "answer is", "option is"):
        if prefix in text:
            rest = _after(text, prefix)
            return float(rest is not None and rest.startswith(golds))
    word = next((w for w in text.split() if w in "ABCD"), None)
    return float(word is not None and word in golds)


def words_f1(answer, task):
    """Returns the largest token F1 over the gold answers."""
    return max([0.0, *(overlap.f1(english_words(answer), english_words(gold)) for gold in task["answers"])])


def letters_f1(answer, task):
    """Returns the largest F1 of characters over the gold answers, without punctuation and white space."""
    return max([0.0, *(overlap.f1(list(chinese_text(answer)), list(chinese_text(gold))) for gold in task["answers"])])


def summary(answer, task):
    """Returns the largest ROUGE-Lsum over the gold summaries."""
    return max(overlap.rouge_lsum(answer, gold) for gold in task["answers"])


def contains_gold(answer, task):
    """Returns whether the first gold answer occurs in the answer."""
    return float(task["answers"][0] in answer)


def contains_any(answer, task):
    """Returns whether a gold answer occurs in the answer, in capitals."""
    return float(any(gold.upper() in answer.strip().upper() for gold in task["answers"]))


def contains_fraction(answer, task):
    """Returns the fraction of gold answers that occur in the answer, without regard to case, rounded to 2 digits."""
    return round(sum(gold.lower() in answer.lower() for gold in task["answers"]) / len(task["answers"]), 2)


FUNCTION = {"python": "(function_definition name: (_)) @f", "java": "(method_declaration name: (_)) @f",
            "typescript": "(function_declaration name: (_)) @f", "rust": "(function_item name: (_)) @f",
            "cpp": "(function_definition declarator: (function_declarator declarator: (identifier))) @f",
            "go": "(function_declaration name: (_)) @f"}  # tree-sitter's query of a function in each language


def first_function(answer, language):
    """Returns the first function of the fenced code blocks, or the first block, or the answer if it has no block."""
    answer = answer.strip()
    blocks = re.findall(r"^```(?:\w+)?\s*\n(.*?)(?=^```)```", answer, re.DOTALL | re.MULTILINE)
    if not blocks:
        return answer
    with needing("the scorer scbench-function", "tree_sitter_languages"):
        from tree_sitter_languages import get_language, get_parser
    for block in blocks:
        code = block.encode("utf-8", "replace")
        found = get_language(language).query(FUNCTION[language]).captures(get_parser(language).parse(code).root_node)
        for node, _ in found[:1]:
            return code[node.start_byte:node.end_byte].decode("utf-8", "replace")
    return blocks[0]


def function_found(answer, task):
    """Returns whether the answer's function resembles the gold one most of all functions that are asked of its repository, and BLEU is 0.8 or more."""
    ours, best, most = re.split(r"\s+", first_function(answer, task["language"]).strip()), None, 0.0
    for name, code in task["functions"]:
        score = overlap.bleu(ours, re.split(r"\s+", code.strip()))
        if score > most:
            best, most = name, score
    return float(best == task["function"] and most >= BLEU_LEAST)


# ---- mathematics

def gsm8k_original(answer, task):
    """Returns whether the first number after "#### " is the gold one; only commas are deleted."""
    ours, gold = (m.strict_number(x).replace(",", "") for x in (answer, task["answers"][0]))
    return float(ours == gold)


def gsm8k_strict(answer, task):
    """Returns whether the first number after "#### " is the gold one, by the harness's exact match."""
    return float(m.same_number_text(m.strict_number(answer), task["answers"][0]))


def gsm8k_flexible(answer, task):
    """Returns whether the last number is the gold one, by the harness's exact match."""
    return float(m.same_number_text(m.flexible_number(answer), task["answers"][0]))


def math_hendrycks(answer, task):
    """Returns whether the last box equals the gold answer as a string, after Hendrycks et al."""
    return float(m.same_latex(m.inside(m.boxed(answer)), task["answers"][0]))


def math_prm800k(answer, task):
    """Returns whether the last box equals the gold answer by the grader of PRM800K."""
    return float(m.graded(m.inside(m.boxed(answer)), task["answers"][0]))


def aime_answer(answer):
    """Returns the last box, or else the text between the first and the last dollar, or else the answer."""
    found = m.inside(m.boxed(answer))
    if "\\boxed " in answer:
        found = answer.split("\\boxed ")[-1].split("$")[0]
    if found is None and answer.count("$") > 1:
        return answer[answer.index("$") + 1:answer.rindex("$")]
    return answer if found is None else found


def aime_harness(answer, task):
    """Returns whether the final answer equals the gold one as a string, as lm-evaluation-harness compares them: 073 is not 73."""
    return float(m.same_latex(aime_answer(answer), task["answers"][0], strict=True))


def aime_integer(answer, task):
    """Returns whether the final answer is the gold integer: 073 is 73."""
    found = re.fullmatch(r"\s*\$?\s*0*(\d{1,3})\s*\$?\.?\s*", aime_answer(answer), re.ASCII)
    return float(found is not None and int(found[1]) == int(task["answers"][0]))


SCORERS = {
    "ruler-all": ruler_all, "ruler-any": ruler_any,
    "longbench-f1": longbench_f1, "longbench-f1-zh": longbench_f1_zh, "longbench-rouge": longbench_rouge, "longbench-rouge-zh": longbench_rouge_zh,
    "longbench-classes": longbench_classes, "longbench-retrieval": longbench_retrieval, "longbench-count": longbench_count, "longbench-code": longbench_code,
    "longbench2-choice": longbench2_choice,
    "infinitebench-digits": first_digits, "infinitebench-word": gold_is_word, "infinitebench-name": name_is_word, "infinitebench-integer": last_integer,
    "infinitebench-number": first_number, "infinitebench-prefix": correct_prefix, "infinitebench-debug": code_debug, "infinitebench-choice": choice_letter,
    "infinitebench-f1": words_f1, "infinitebench-f1-zh": letters_f1, "infinitebench-summary": summary,
    "scbench-contains": contains_gold, "scbench-any": contains_any, "scbench-fraction": contains_fraction, "scbench-f1-zh": letters_f1, "scbench-choice": choice_letter,
    "scbench-number": first_number_cut, "scbench-digits": first_digits, "scbench-summary": summary, "scbench-function": function_found,
    "gsm8k-original": gsm8k_original, "gsm8k-strict": gsm8k_strict, "gsm8k-flexible": gsm8k_flexible,
    "math-hendrycks": math_hendrycks, "math-prm800k": math_prm800k, "aime-harness": aime_harness, "aime-integer": aime_integer,
}


def scorer(name):
    """Returns the scorer of a name; an unknown name is an error that names the nearest one."""
    if name not in SCORERS:
        raise Error("the scorer %r is not known%s; docs/guide/benchmarks.md lists all" % (name, meant(str(name), SCORERS)))
    return SCORERS[name]
