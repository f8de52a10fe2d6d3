#!/usr/bin/env python3
"""Run lm-evaluation-harness's own tests of its class for transformers with kvfate's model class.

usage: bench/harness_tests.py CHECKOUT MODEL.gguf TEXT

CHECKOUT is the repository of lm-evaluation-harness, of the installed version.  PATH must have kvfate; this Python needs
lm_eval, torch, transformers, accelerate, gguf and pytest.  Three files of tests/models are run: test_huggingface.py,
test_bos_handling.py and test_max_length.py.  The script changes only texts that need the network or name the class:

  * the class HFLM is kvfate's class on MODEL, exact;
  * the tasks arc_easy, gsm8k and wikitext are made from paragraphs of TEXT;
  * the expected values are computed with the real HFLM on MODEL in float32, because the originals need a model on the network;
  * two small random models, of which one adds a start mark, give the tokenizers;
  * create_hf_mock() gives kvfate's class on the model of the tokenizer, which gets add_bos_token as HFLM gives it;
  * max_length is asked of a folder with the configuration of the test.

In 0.4.13, 49 tests are run.  20 are left out: 16 of another class (vLLM), and tests of models that kvfate does not open:
one of an encoder-decoder (seq2seq), and three of folders with a nested text_config.  The exit status is that of pytest.
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import textwrap

os.environ.update({"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FILES = "test_huggingface.py", "test_bos_handling.py", "test_max_length.py"
TASKS = {"arc_easy": "output_type: multiple_choice\ndoc_to_choice: choices\ndoc_to_target: answer\nmetric_list: [{metric: acc}]\n",
         "gsm8k": "output_type: generate_until\nfewshot_split: test\nnum_fewshot: 2\ndoc_to_target: reply\n"
                  "generation_kwargs: {until: ['Question:'], do_sample: false}\nmetric_list: [{metric: exact_match}]\n",
         "wikitext": "output_type: loglikelihood_rolling\ndoc_to_target: '{{page}}'\nmetric_list: [{metric: word_perplexity}]\n"}

CONFTEST = '''
"""The class and the tokenizers that the tests get."""
import functools
import json
import os
import shutil
import types

import lm_eval.models.huggingface as place
import torch
import transformers
from lm_eval import tasks

from kvfate.harness import Kvfate

FOLDERS = {"EleutherAI/pythia-14m": FOLDER + "/plain", "allenai/OLMo-3-7B-Instruct": FOLDER + "/start"}
tasks.TaskManager = functools.partial(tasks.TaskManager, include_path=FOLDER + "/tasks", include_defaults=False)
from_pretrained = transformers.AutoTokenizer.from_pretrained
transformers.AutoTokenizer.from_pretrained = lambda name, *a, **k: from_pretrained(FOLDERS.get(name, name), *a, **k)


class Adapted(Kvfate):
    """Kvfate with tensors and a prefix that can be set, because the tests use an HFLM or a mock of it so."""
    _DEFAULT_MAX_LENGTH = 2048

    def __init__(self, pretrained=None, device=None, dtype=None, **more):
        super().__init__(model=MODEL if dtype else pretrained, device=device, exact=True, threads=2, **more)

    def tok_batch_encode(self, *a, **k):
        return tuple(map(torch.from_numpy, super().tok_batch_encode(*a, **k)))

    @property
    def prefix_token_id(self):
        return super().prefix_token_id

    @prefix_token_id.setter
    def prefix_token_id(self, value):
        self._prefix = value

    @property
    def max_length(self):
        if isinstance(self, types.SimpleNamespace):
            return length_of(self)
        return super().max_length


def length_of(stub):
    """max_length of a model with the configuration of a test in its config.json."""
    if stub._max_length:
        return Kvfate(model=FOLDERS["EleutherAI/pythia-14m"], max_length=stub._max_length).max_length
    folder = os.path.join(FOLDER, "length")
    shutil.copytree(FOLDERS["EleutherAI/pythia-14m"], folder, dirs_exist_ok=True)
    with open(folder + "/config.json") as f:
        told = json.load(f)
    with open(folder + "/config.json", "w") as f:
        json.dump({**told, "max_position_embeddings": stub.model.config.max_position_embeddings}, f)
    return Kvfate(model=folder).max_length


place.HFLM = Adapted
DEFAULTS = {}  # the post-processor of each tokenizer


def create_hf_mock(tokenizer, add_bos_token, backend="causal"):
    library = tokenizer.backend_tokenizer
    library.post_processor = DEFAULTS.setdefault(tokenizer.name_or_path, library.post_processor)
    if add_bos_token and tokenizer.encode("a")[0] != tokenizer.bos_token_id:
        tokenizer.add_bos_token = True
    return Adapted(tokenizer.name_or_path, add_bos_token=add_bos_token)
'''


def write_tasks(folder, text):
    """Writes the three tasks, with ten items each."""
    with open(text, encoding="utf-8") as f:
        paragraphs = [p for p in (line.split() for line in f) if len(p) >= 60 and "=" not in p]
    chance = random.Random(1)
    chosen = chance.sample(paragraphs, 120)
    os.makedirs(folder)
    with open(folder + "/items.jsonl", "w", encoding="utf-8") as f:
        for i, words in enumerate(chosen[:20]):
            choices = [" ".join(p[32:38]) for p in (words, *chance.sample(chosen[20:], 3))]
            page = "\n".join(" ".join(p) for p in chosen[20 + 5 * i:25 + 5 * i])
            f.write(json.dumps({"text": " ".join(words[:32]), "choices": choices, "answer": 0, "reply": " ".join(words[32:38]), "page": page}) + "\n")
    for name, task in TASKS.items():
        with open("%s/%s.yaml" % (folder, name), "w") as f:
            f.write("task: %s\ndataset_path: json\ndataset_kwargs: {data_files: {test: %s/items.jsonl}}\ntest_split: test\ndoc_to_text: '{{text}}'\n%s" % (
                name, folder, task))


def instances(folder):
    """The requests of the class Test_HFLM, made as it makes them."""
    from lm_eval.tasks import TaskManager
    made = TaskManager(include_path=folder, include_defaults=False).load(list(TASKS))["tasks"]
    made["gsm8k"]._config.generation_kwargs["max_gen_toks"] = 10
    made["gsm8k"].set_fewshot_seed(1234)
    for name in TASKS:
        made[name].build_all_requests(limit=10, rank=0, world_size=1)
    return [made[name].instances for name in TASKS]


def expected(folder, gguf):
    """(pattern of a text of test_huggingface.py, value of the real class that replaces it)"""
    sys.path.insert(0, HERE)
    from harness import of_transformers
    lm = of_transformers(gguf)
    choose, generate, roll = instances(folder)
    rows = lm.tok_batch_encode(["foo bar"])[0]
    text = lm.tok_decode(lm._model_generate(rows, max_length=10, stop=["\n\n"])[0])
    batch = lm.tok_batch_encode(["foo bar", "bar foo"])[0].tolist()
    return [(r"MULTIPLE_CH_RES = \[[^\]]*\]", "MULTIPLE_CH_RES = %r" % [x for x, _ in lm.loglikelihood(choose)]),
            (r"generate_until_RES = \[.*?\n    \]", "generate_until_RES = %r" % lm.generate_until(generate)),
            (r"ROLLING_RES = \[[^\]]*\]", "ROLLING_RES = %r" % [float(x) for x in lm.loglikelihood_rolling(roll)]),
            (r"\[\[12110, 2534\], \[2009, 17374\]\]", repr(batch)), (r"\[12110, 2534\]", repr(batch[0])),
            (r'"foo bar\\n<bazhang> ?!info bar"', repr(text))]


def write_models(folder):
    """Writes small random models as folders."""
    sys.path[:0] = [ROOT + "/tests/data/golden/tools", ROOT + "/tests/cli", ROOT + "/tests"]
    import gen_tiny
    import hf_folder
    for name in ("plain", "start"):
        gguf = "%s/%s.gguf" % (folder, name)
        gen_tiny.main(["-o", gguf])
        hf_folder.write(gguf, folder + "/" + name)
    hf_folder.add_start(folder + "/start")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    checkout, gguf, text = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="kvfate-harness-") as folder:
        write_tasks(folder + "/tasks", text)
        write_models(folder)
        with open(folder + "/conftest.py", "w") as f:
            f.write("FOLDER, MODEL = %r, %r\n" % (folder, gguf) + textwrap.dedent(CONFTEST))
        for name in FILES:
            with open("%s/tests/models/%s" % (checkout, name), encoding="utf-8") as f:
                source = f.read()
            for pattern, value in expected(folder + "/tasks", gguf) if name == FILES[0] else ():
                source, n = re.subn(pattern, lambda _: value, source, flags=re.S)
                if not n:
                    sys.exit("%s: %s does not occur; this script is for lm_eval 0.4.13" % (name, pattern))
            source += "\n\nfrom conftest import create_hf_mock  # noqa\n" if name == FILES[1] else ""
            with open(folder + "/" + name, "w", encoding="utf-8") as f:
                f.write(source)
        path = os.pathsep.join([ROOT + "/python", *filter(None, [os.environ.get("PYTHONPATH")])])  # pytest runs in another folder
        sys.exit(subprocess.run([sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider",
                                 "-k", "not vllm and not seq2seq and not test_nested_text_config and not gemma3", *FILES],
                                cwd=folder, env={**os.environ, "PYTHONPATH": path}).returncode)


if __name__ == "__main__":
    main()
