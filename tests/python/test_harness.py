#!/usr/bin/env python3
"""usage: test_harness.py KVFATE LIBKVFTRACE SOURCE_ROOT FOLDER_OF_TINY_MODELS

Compares the model class for lm-evaluation-harness with the harness's own class for transformers on
the same weights in float32: tokens, log-likelihoods of requests and documents that are longer than
the context, answers, chat templates, and complete tasks. Also tests caches, sampling, methods, the
configuration in the results, and each rejection. Skips if lm_eval, torch or transformers are not
installed; KVFATE_TORCH_PYTHON names a Python that has them."""
import json
import os
import random
import sys
import tempfile

os.environ.update({"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"})
from capture_checks import ROOT, begin  # noqa: E402

begin("the model class for lm-evaluation-harness", "lm_eval", "torch", "transformers", "accelerate")
sys.path.append(os.path.join(ROOT, "tests/cli"))
import logging  # noqa: E402

import lm_eval  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.api.model import CachingLM  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

import hf_folder  # noqa: E402
from check import check, finish  # noqa: E402
from gen_tiny import WORDS  # noqa: E402
from kvfate.harness import Kvfate  # noqa: E402

sys.argv[1:] = [sys.argv[1], sys.argv[4]]  # the arguments of harness.Suite
from harness import Gguf  # noqa: E402

logging.disable(logging.WARNING)
work = tempfile.TemporaryDirectory(prefix="kvfate-harness-")
EXACT = {"exact": True, "threads": 1}
CONTEXT, DOCUMENTS = 64, 20
NEAR, NEAR_OF_ONE = 1e-4, 1e-6  # absolute, and relative for sums in float32 of 1,000 log-likelihoods of about -6
chance = random.Random(1)
KNOWN = [w for w in (w.strip("\u0120") for w in WORDS) if w.isascii() and w]


def path(name):
    return os.path.join(work.name, name)


def models(name, template=None, start=False):
    """Both classes on one folder.  start: the tokenizer adds the start mark."""
    made = Gguf().set("llama.context_length", CONTEXT)
    tokens = made.get("tokenizer.ggml.tokens")
    made.set("tokenizer.ggml.tokens", ["<|pad|>", *tokens[1:]])  # the program ends answers at <|endoftext|>, too
    if template:
        made.set("tokenizer.chat_template", template)
    hf_folder.write(made.write(path(name + ".gguf")), path(name))
    if start:
        hf_folder.add_start(path(name))
    # HFLM's logits_cache adds the wrong terms if two requests are one text with different borders (lm_eval 0.4.13)
    return HFLM(pretrained=path(name), device="cpu", dtype="float32", batch_size=4, logits_cache=False), Kvfate(model=path(name), **EXACT)


def words(least, most):
    n = chance.randint(least, most)
    return " ".join(chance.choice(KNOWN) + chance.choice(["", "", ",", ".", "!\n", " 12", " \u00e9"]) for _ in range(n))


def requests(kind, *arguments):
    return [Instance(kind, {}, a, i, metadata=("a task", i, 1)) for i, a in enumerate(arguments)]


def near(name, got, want):
    pairs = [(a[0], b[0]) if isinstance(a, tuple) else (a, b) for a, b in zip(got, want, strict=True)]
    same = all(a[1] == b[1] for a, b in zip(got, want) if isinstance(a, tuple))
    far = max(abs(a - b) for a, b in pairs)
    wrong = [(i, *x) for i, x in enumerate(pairs) if abs(x[0] - x[1]) >= NEAR + NEAR_OF_ONE * abs(x[1])]
    check(name, not wrong and same, far, wrong)
    return far


# ---- tokens, log-likelihoods and answers, with a vocabulary that adds no start mark and one that does
worst = {}
DOCS = [words(40, 100) for _ in range(DOCUMENTS)]
for name, start in (("plain", False), ("start", True)):
    hf, own = models(name, start=start)
    for text in ["", "foo bar", *DOCS[:4], "<|im_start|>the", "the<|im_end|> thing"]:
        for special in (None, True, False):
            ids = own.tok_encode(text, add_special_tokens=special)
            check("%s: ids of %r, %s" % (name, text[:20], special), ids == hf.tok_encode(text, add_special_tokens=special), ids)
        for skip in (True, False):
            check("%s: text of %r" % (name, text[:20]), own.tok_decode(ids, skip_special_tokens=skip) == hf.tok_decode(ids, skip_special_tokens=skip))
    strings = ["the thing", "and it is other", "so"]
    for how in ({}, {"padding_side": "right"}, {"left_truncate_len": 3}):
        a, b = own.tok_batch_encode(strings, **how), hf.tok_batch_encode(strings, **how)
        check(name + ": a batch of ids", [(x * m).tolist() for x, m in (a,)] == [(x * m).tolist() for x, m in (b,)] and a[1].tolist() == b[1].tolist(), a, b)
    check(name + ": lengths and marks", (own.max_length, own.prefix_token_id, own.eot_token_id) == (hf.max_length, hf.prefix_token_id, hf.eot_token_id) == (CONTEXT, 1, 2))
    lengths = [len(own.tok_encode(x)) for x in DOCS]
    check(name + ": documents are longer than the context", min(lengths) > CONTEXT + 1, lengths)
    rolled = requests("loglikelihood_rolling", *((x,) for x in [*DOCS, "", "the", own.tok_decode(own.tok_encode(DOCS[0])[:CONTEXT])]))
    worst[name + ", rolling"] = near(name + ": rolling", own.loglikelihood_rolling(rolled), hf.loglikelihood_rolling(rolled, disable_tqdm=True))
    asked = []
    for i, text in enumerate(DOCS):  # contexts that are cut, short ones, empty ones, blanks at their end, one text with several choices
        cut = chance.choice([5, 30, len(text) - 40])
        asked += [(text[:cut] + " " * (i % 3), " " + words(1, 4)), (text[:cut], " the"), (text[:cut], " thing"), ("", text[:cut % 90])]
    longest = next(x for x in (DOCS[1][:n] for n in range(400)) if x and len(own._encode_pair(DOCS[0], x)[1]) == CONTEXT)
    asked += [asked[0], ("<|im_start|>the", " thing"), ("", "<|im_start|>the thing"), (DOCS[0], longest)]
    lines = requests("loglikelihood", *asked)
    worst[name + ", plain"] = near(name + ": plain", own.loglikelihood(lines), hf.loglikelihood(lines, disable_tqdm=True))
    until = [{"until": ["the", "\n\n"], "max_gen_toks": 12}, {"until": "q", "max_new_tokens": 8, "do_sample": False}, {"max_gen_toks": 5}, {}]
    until[3] = {"until": [], "max_gen_toks": CONTEXT - 1, "temperature": 0.0, "num_beams": 1}
    lines = requests("generate_until", *((text[:chance.choice([1, 40, len(text)])], dict(until[i % 4])) for i, text in enumerate(DOCS)))
    got, want = own.generate_until(lines), hf.generate_until(lines, disable_tqdm=True)
    check(name + ": answers", got == want, [(a, b) for a, b in zip(got, want) if a != b])
    check(name + ": some end early", len({len(x) for x in got}) > 4, got)
    context = own.tok_batch_encode(["the thing"])[0]
    check(name + ": rows of ids", own._model_generate(context, max_length=12, stop=["\n\n"]) == hf._model_generate(
        hf.tok_batch_encode(["the thing"])[0], max_length=12, stop=["\n\n"]).tolist())
    short = {"max_length": 24}
    hf_short, own_short = HFLM(pretrained=path(name), device="cpu", dtype="float32", **short), Kvfate(pretrained=path(name), **short, **EXACT)
    worst[name + ", max_length"] = near(name + ": a shorter maximum length", own_short.loglikelihood_rolling(rolled[:3]), hf_short.loglikelihood_rolling(rolled[:3]))
    for adds in (True, False):
        a, b = HFLM(pretrained=path(name), device="cpu", dtype="float32", add_bos_token=adds), Kvfate(model=path(name), add_bos_token=adds, **EXACT)
        for text in ("the thing", "<|im_start|>the"):
            check("%s: add_bos_token=%s" % (name, adds), a.tok_encode(text) == b.tok_encode(text), a.tok_encode(text), b.tok_encode(text))
        near("%s: rolling, add_bos_token=%s" % (name, adds), b.loglikelihood_rolling(rolled[:2]), a.loglikelihood_rolling(rolled[:2]))
    a, b = HFLM(pretrained=path(name), device="cpu", dtype="float32", prefix_token_id=7), Kvfate(model=path(name), prefix_token_id=7, **EXACT)
    near(name + ": another prefix", b.loglikelihood_rolling(rolled[:2]), a.loglikelihood_rolling(rolled[:2]))

# ---- chat templates
hf, own = models("plain")
CHATS = [[{"role": "user", "content": "the"}], [{"role": "system", "content": "be"}, {"role": "user", "content": " a "}, {"role": "assistant", "content": "it is "}]]
for chat in CHATS:
    for begins in (True, False):
        check("a chat", own.apply_chat_template(chat, begins) == hf.apply_chat_template(chat, begins), chat, begins)
check("the text of the template", own.chat_template(True) == hf.chat_template(True) != "" and own.chat_template(False) is None)
STRICT = "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}" \
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and enable_thinking %}<think>{% endif %}{% endif %}"
hf_strict, own_strict = models("strict", STRICT)
for begins in (True, False):
    check("a template that rejects systems", own_strict.apply_chat_template(CHATS[1], begins) == hf_strict.apply_chat_template(CHATS[1], begins))
names = {own.tokenizer_name, own_strict.tokenizer_name, Kvfate(model=path("start")).tokenizer_name}
check("the name of the tokenizer differs with the template", len({own.tokenizer_name, own_strict.tokenizer_name}) == 2
      and own.tokenizer_name == Kvfate(model=path("plain"), method="window", budget=8).tokenizer_name, names)
check("and can be a name of a file", all(c.isalnum() or c in "-._" for name in names for c in name))
thinks = Kvfate(model=path("strict"), enable_thinking=True, think_end_token="the", **EXACT)
check("thinking", thinks.apply_chat_template(CHATS[0]) == "<user>the<assistant><think>" and thinks.tokenizer_name != own_strict.tokenizer_name)
line = requests("generate_until", ("it is", {"max_gen_toks": 30, "until": ["zzz"]}))
whole = own.generate_until(line)[0]
ids = own._model_generate([own.tok_encode("it is")], max_new_tokens=30)[0][len(own.tok_encode("it is")):]
for end in (ids[9], own.tok_decode([ids[9]]), 299):
    if isinstance(end, str) and "\ufffd" in end:
        continue
    want = HFLM(pretrained=path("plain"), device="cpu", dtype="float32", think_end_token=end).generate_until(line)
    check("the answer after a thought that %r ends" % end, Kvfate(model=path("plain"), think_end_token=end, **EXACT).generate_until(line) == want, want)

# ---- complete tasks, also with examples as turns and a system message
with open(path("items.jsonl"), "w") as f:
    for i in range(DOCUMENTS):
        f.write(json.dumps({"text": words(4, 40), "choices": [words(1, 3) for _ in range(4)], "answer": i % 4, "reply": words(1, 2)}) + "\n")
HEAD = "dataset_path: json\ndataset_kwargs: {data_files: {test: %s}}\ntest_split: test\nfewshot_split: test\ndoc_to_text: '{{text}}'\n" % path("items.jsonl")
TASKS = {"choose": "output_type: multiple_choice\ndoc_to_choice: choices\ndoc_to_target: answer\nmetric_list: [{metric: acc}]\n",
         "reply": "output_type: generate_until\ndoc_to_target: reply\ngeneration_kwargs: {until: ['.'], max_gen_toks: 10}\nmetric_list: [{metric: exact_match}]\n",
         "roll": "output_type: loglikelihood_rolling\ndoc_to_target: '{{text}}'\nmetric_list: [{metric: word_perplexity}]\n"}
for name, text in TASKS.items():
    with open(path(name + ".yaml"), "w") as f:
        f.write("task: %s\n" % name + HEAD + (text if name != "roll" else text))


def evaluated(lm, **more):
    told = lm_eval.simple_evaluate(model=lm, tasks=list(TASKS), task_manager=TaskManager(include_path=work.name, include_defaults=False), log_samples=True,
                                   bootstrap_iters=0, **more)
    return {t: sorted(told["samples"][t], key=lambda x: x["doc_id"]) for t in TASKS}, told


def compared(name, got, want):
    far = 0
    for task in TASKS:
        for a, b in zip(got[0][task], want[0][task], strict=True):
            check("%s, %s: the same request" % (name, task), a["arguments"] == b["arguments"])
            for x, y in zip((r[0] for r in a["resps"]), (r[0] for r in b["resps"]), strict=True):
                if task == "reply":
                    check("%s: the same answer" % name, x == y, repr(x), repr(y))
                    continue
                x, y = (x, y) if task == "roll" else (x[0], y[0])
                far = max(far, abs(float(x) - float(y)))
                check(name + ": log-likelihoods", abs(float(x) - float(y)) < NEAR + NEAR_OF_ONE * abs(float(y)), x, y)
    for task in TASKS:
        for key, value in want[1]["results"][task].items():
            if isinstance(value, float):
                check("%s, %s: %s" % (name, task, key), abs(got[1]["results"][task][key] - value) < 1e-3 * max(1, abs(value)), got[1]["results"][task], key)
    return far


worst["tasks"] = compared("tasks", evaluated(own), evaluated(hf))
HOW = {"num_fewshot": 1, "apply_chat_template": True, "fewshot_as_multiturn": True, "system_instruction": "be brief"}
worst["tasks as chats"] = compared("tasks as chats", evaluated(own, **HOW), evaluated(hf, **HOW))

# ---- methods: another cache, named in the configuration; results do not depend on other requests
small = {"method": "window:sinks=1", "budget": 8}
told = evaluated("kvfate", model_args={"model": path("plain"), **small, **EXACT}, batch_size=2)
full = evaluated(own)
config = told[1]["config"]
check("the configuration", config["method"] == "window:sinks=1" and config["budget"] == 8 and "cuts the cache after it" in config["protocol"]
      and config["kvfate_options"]["exact"] is True and config["max_length"] == CONTEXT, config)
check("a small cache has other results", all(json.dumps(a["resps"], default=str) != json.dumps(b["resps"], default=str)
                                             for a, b in zip(told[0]["choose"], full[0]["choose"])))
json.dumps(config)
method = Kvfate(model=path("plain"), **small, **EXACT)
lines = requests("loglikelihood", *asked)
check("neighbours change nothing", method.loglikelihood(lines) == [method.loglikelihood([x])[0] for x in lines[:6]] + method.loglikelihood(lines[6:]))

# ---- caches of answers: they answer equal requests, and reject other methods
cached = CachingLM(own, path("answers.db"))
first = [cached.loglikelihood(lines), cached.loglikelihood_rolling(rolled), cached.generate_until(line)]
scores, own._scores = own._scores, None  # a request that is not in the cache would fail
check("from the cache", [cached.loglikelihood(lines), cached.loglikelihood_rolling(rolled), cached.generate_until(line)] == first)
own._scores = scores
CachingLM(Kvfate(model=path("plain"), **{**EXACT, "threads": 2}), path("answers.db"))
try:
    CachingLM(method, path("answers.db"))
    check("another method", False)
except ValueError as e:
    check("another method", "--use_cache" in str(e) and '"method": "full"' in str(e), e)

# ---- sampling: repeated requests differ, a seed gives the same answers, a low temperature the likeliest
drawn = requests("generate_until", *[("it is", {"max_gen_toks": 20, "do_sample": True, "temperature": 3.0})] * 4)
got = own.generate_until(drawn)
check("draws of repeated requests differ", len(set(got)) == 4 and own.generate_until(drawn) == got, got)
check("another seed", Kvfate(model=path("plain"), seed=9, **EXACT).generate_until(drawn) != got)
cold = requests("generate_until", ("it is", {"max_gen_toks": 20, "do_sample": True, "temperature": 1e-4, "top_p": 0.5}))
check("cold", own.generate_until(cold) == own.generate_until(requests("generate_until", ("it is", {"max_gen_toks": 20}))))


# ---- rejections
def rejected(what, words, call):
    try:
        call()
        check(what, False)
    except Exception as e:
        check(what, isinstance(e, ValueError) and all(w in str(e) for w in words), type(e), e)


def generation(**how):
    return lambda: own.generate_until(requests("generate_until", ("a", {"max_gen_toks": 8, **how})))


for name, value, word in (("dtype", "float16", "dtype"), ("parallelize", True, "parallelize"), ("bugdet", 8, "did you mean budget"), ("temp", 1, "--gen_kwargs"),
                          ("jsonl", "x", "the task has the texts"), ("device", "mps", "mps"), ("batch_size", "many", "many"), ("batch_size", 65, "65"),
                          ("chat_template_args", {"x": 1}, "x"), ("enable_thinking", True, "think_end_token"), ("rope_scale", "linear:2", "max_length"),
                          ("pretrained", "x", "model"), ("predict", 4, "max_gen_toks")):
    rejected("argument %s=%s" % (name, value), [name if name != "pretrained" else "pretrained", word], lambda: Kvfate(model=path("plain"), **{name: value}))
rejected("two lengths", ["max_length", "context"], lambda: Kvfate(model=path("plain"), max_length=8, context=8))
rejected("another template", ["tool_use"], lambda: own.chat_template("tool_use"))
rejected("no template", ["no chat template"], lambda: Kvfate(model=Gguf().drop("tokenizer.chat_template").write(path("bare.gguf"))).chat_template(True))
rejected("beams", ["num_beams"], generation(num_beams=2))
rejected("top_k", ["top_k"], generation(do_sample=True, temperature=1.0, top_k=5))
rejected("no temperature", ["temperature"], generation(do_sample=True))
rejected("an unknown argument", ["presence"], generation(presence=1))
rejected("no room for a prompt", ["max_gen_toks", str(CONTEXT)], generation(max_gen_toks=CONTEXT))
rejected("a long continuation", ["max_length"], lambda: own.loglikelihood(requests("loglikelihood", ("a", DOCS[0]))))
rejected("an empty continuation", ["empty"], lambda: own.loglikelihood(requests("loglikelihood", ("a", ""))))
rejected("thinking while scoring", ["enable_thinking=True", "a task"], lambda: thinks.loglikelihood(lines))
for what, lm in (("a wrong method", Kvfate(model=path("plain"), method="nothing")), ("a length over the context", Kvfate(model=path("plain"), max_length=CONTEXT + 1))):
    try:
        lm.loglikelihood_rolling(rolled[:1])
        check(what, False)
    except Exception as e:
        check(what, type(e).__name__ == "ProgramError" and ("nothing" in str(e) or str(CONTEXT) in str(e)), e)
print("largest differences:", ", ".join("%s %.1e" % x for x in worst.items()))
work.cleanup()
finish()
