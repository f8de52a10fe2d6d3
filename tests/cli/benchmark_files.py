"""Small benchmarks in their published formats, and repositories with templates in the places where the published ones have them.

The texts are made up. Only names of files, names of fields and the syntax of templates are the published ones."""
import json
import os
import random

RULER_TEMPLATES = {
    "niah": {"tokens_to_generate": 12, "template": "Some {type_needle_v} are in this text.\n{context}\nWhat are all {type_needle_v} for {query}?", "answer_prefix": " The {type_needle_v} for {query} are"},
    "variable_tracking": {"tokens_to_generate": 30, "template": "Track names.\n\n{context}\nWhich have the value {query}?", "answer_prefix": " Answer: {num_v} names have the value {query}: "},
    "common_words_extraction": {"tokens_to_generate": 20, "template": "A list.\n{context}\nWhich 10 are common?", "answer_prefix": " Answer: they are:"},
    "freq_words_extraction": {"tokens_to_generate": 20, "template": "A code. {context}\nWhich 3 are frequent?", "answer_prefix": " Answer: these words:"},
    "qa": {"tokens_to_generate": 16, "template": "Documents.\n\n{context}\n\nQuestion: {query}", "answer_prefix": " Answer: it is"},
}
NIAH = '''import argparse
needle = "The {type_needle_v} for {key} is: {value}."
if True:
    haystack = open("x").read()
elif True:
    haystack = "Grass grows. Rain falls."
'''
LONG = "The mill stood by the river. Ana Ruiz built it in 1830. Rain fell on the stones of the old town. "


def write(path, what):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(what if isinstance(what, str) else json.dumps(what))


def lines(path, rows):
    write(path, "".join(json.dumps(r) + "\n" for r in rows))
    return path


def ruler(base):
    """Writes a repository, word lists and data of RULER; returns the folder of the repository."""
    rng = random.Random(5)
    def word():
        return "".join(rng.choice("bdglmnprst") + rng.choice("aeiou") for _ in range(3))
    repository = os.path.join(base, "RULER")
    data = os.path.join(repository, "scripts/data/synthetic")
    write(data + "/constants.py", "TASKS = " + repr(RULER_TEMPLATES))
    write(data + "/niah.py", NIAH)
    write(data + "/qa.py", 'DOCUMENT_PROMPT = "Document {i}:\\n{document}"\n')
    for name, n in (("nounlist", 3000), ("adjectivelist", 4), ("verblist", 2500)):
        write(os.path.join(base, "words", name + ".txt"), "".join(word() + "%d\n" % i for i in range(n)))
    write(os.path.join(base, "essays.json"), {"text": "".join("%s %s went to the %s, said \"%s!\" and slept. " % (word().title(), word(), word(), word()) for _ in range(400))})
    write(os.path.join(base, "squad.json"), {"data": [{"paragraphs": [{"context": "Text %d of %d. %s" % (j, i, word()), "qas": [
        {"question": "Which is %d?" % k, "is_impossible": k == 1, "answers": [{"text": "a%d" % (i * 100 + j * 10 + k)}]} for k in range(3)]} for j in range(6)]} for i in range(6)]})
    write(os.path.join(base, "hotpot.json"), [{"question": "Who is %d?" % i, "answer": word(), "context": [["T%d" % (i * 7 + j), ["One. ", word()]] for j in range(10)]} for i in range(12)])
    return repository


def longbench(base):
    repository = os.path.join(base, "LongBench")
    write(repository + "/LongBench/config/dataset2prompt.json", {"hotpotqa": "Passages:\n{context}\n\nQuestion: {input}\nAnswer:", "trec": "Types.\n{context}\n{input}", "passage_retrieval_en": "{context}\nAbstract: {input}\nIt is"})
    write(repository + "/LongBench/config/dataset2maxlen.json", {"hotpotqa": 8, "trec": 6, "passage_retrieval_en": 5})
    write(repository + "/prompts/0shot.txt", "Read.\n<text>\n$DOC$\n</text>\n$Q$\n(A) $C_A$\n(B) $C_B$\n(C) $C_C$\n(D) $C_D$\nAnswer.")
    row = {"input": "Who built the mill?", "context": LONG * 6, "answers": ["Ana Ruiz"], "length": 5000, "dataset": "hotpotqa", "language": "en", "all_classes": None, "_id": "a1"}
    lines(base + "/hotpotqa.jsonl", [row, {**row, "input": "When?", "answers": ["1830", "in 1830"], "_id": "a2", "context": LONG, "length": 20}])
    lines(base + "/trec.jsonl", [{**row, "dataset": "trec", "answers": ["Date"], "all_classes": ["Date", "Number"]}])
    lines(base + "/retrieval.jsonl", [{**row, "dataset": "passage_retrieval_en", "answers": ["Paragraph 3"]}])
    write(base + "/data.json", [{"_id": "9f", "domain": "d", "sub_domain": "s", "difficulty": "hard", "length": "short", "question": " Which? ", "choice_A": "a", "choice_B": " b", "choice_C": "c", "choice_D": "d", "answer": "C", "context": LONG}])
    return repository


def infinitebench(base):
    repository = os.path.join(base, "InfiniteBench")
    templates = {"passkey": "Info.\n{context}\n{input}\nThe key is", "longbook_choice_eng": "{context}\n{question}\nA. {OPTION_A}\nB. {OPTION_B}\nC. {OPTION_C}\nD. {OPTION_D}\nIt is", "math_find": "{prefix}\n{context}\n{input}",
                 "code_run": "{func} is here.\n{context}\nCompute {func_call}.", "math_calc": "Expression: {context}\nValues:"}
    write(repository + "/src/prompt.py", "gpt4_templates = %r\nyarn_mistral_templates = %r\n" % ({"passkey": "{context}{input}"}, templates))
    write(repository + "/src/eval_utils.py", "DATA_NAME_TO_MAX_NEW_TOKENS = %r\n" % {"passkey": 6, "longbook_choice_eng": 4, "math_find": 3, "code_run": 5, "math_calc": 30000})
    row = {"id": 7, "context": LONG, "input": "What is the pass key?", "answer": ["71203"], "options": []}
    lines(base + "/passkey.jsonl", [row])
    lines(base + "/choice.jsonl", [{**row, "input": "Who?", "answer": ["Bo"], "options": ["Al", "Bo", "Cy", "Di"]}])
    lines(base + "/find.jsonl", [{**row, "input": "The largest number of the list is:", "context": "[3, 88, 17]", "answer": [88]}])
    lines(base + "/run.jsonl", [{**row, "input": "Please give me the value of func_1(-4).", "context": "def func_1(x): return x", "answer": "-4"}])
    lines(base + "/calc.jsonl", [{**row, "input": "1 + 2", "context": "1 + 2", "answer": [1, 3]}])
    return repository


def scbench(base):
    repository = os.path.join(base, "MInference")
    source = "DATA_NAME_TO_MAX_NEW_TOKENS = {'scbench_kv': 10, 'scbench_mf': 5, 'scbench_choice_eng': 4, 'scbench_repoqa_and_kv': {'scbench_repoqa': 30, 'scbench_kv': 8}}\n"
    source += "multiturn_templates_scdq = {'scbench_kv': 'Find it.\\n{context}', 'scbench_mf': '{prefix}\\n{context}', 'scbench_choice_eng': ('Book.\\n{context}', 'Q: {question} {OPTION_A} {OPTION_B} {OPTION_C} {OPTION_D}'), 'scbench_repoqa_and_kv': '{context}'}\n"
    source += "multiturn_templates = {'scbench_kv': 'Find it.\\n{context}\\n\\n{input}', 'scbench_mf': '{prefix}\\n{context}\\n{input}'}\n"
    source += "multiturn_follow_up_templates_in_chat_tempate = {'scbench_kv': '{input}', 'scbench_mf': '{prefix} {input}', 'scbench_choice_eng': 'x', 'scbench_repoqa_and_kv': '{input}'}\n"
    write(repository + "/scbench/eval_utils.py", source)
    row = {"id": 1, "context": LONG * 3, "multi_turns": [{"input": 'Key: "k%d"' % i, "answer": "v%d" % i} for i in range(3)]}
    lines(base + "/kv.jsonl", [row, {**row, "id": 2}])
    lines(base + "/mf.jsonl", [{**row, "multi_turns": [{"input": "The largest number is: ", "answer": 88}]}])
    lines(base + "/mf3.jsonl", [{**row, "multi_turns": [{"input": "The %s number is: " % x, "answer": 88} for x in ("largest", "smallest", "second")]}])
    lines(base + "/scchoice.jsonl", [{**row, "multi_turns": [{"input": "Who?", "answer": "Bo", "options": ["Al", "Bo", "Cy", "Di"]}]}])
    lines(base + "/mixed.jsonl", [{**row, "lang": "python", "repo": "r", "multi_turns": [{"input": "Adds.", "answer": "def f(a): return a + 1", "name": "f", "task": "scbench_repoqa"}, {"input": "Key?", "answer": "v", "task": "scbench_kv"}]}])
    return repository
