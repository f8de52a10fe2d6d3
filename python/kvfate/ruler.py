"""Prompts of RULER (Hsieh et al. 2024, arXiv 2404.06654), drawn by its published recipe: needles in a haystack, variable tracking, common words,
frequent words, and questions about documents.

Templates, sentences and formats are read from a checkout of the public repository RULER; the essays, questions and word lists from files.
The random draws are those of the published scripts in their order, so that a seed gives their samples if tokens are counted in the same way.  One
step differs: where the scripts split essays into sentences with NLTK, `sentences` splits them at marks that end a sentence."""
import json
import os
import random
import re
import string
import uuid
from typing import NamedTuple

from . import published
from .errors import Error, needing

TRIES = 50  # of a sample that does not fit, with the shortest haystack
NEEDLE, DOCUMENT = "scripts/data/synthetic/niah.py", "scripts/data/synthetic/qa.py"
CONSTANTS = "scripts/data/synthetic/constants.py"
WORD_LISTS = ("nounlist.txt", "adjectivelist.txt", "verblist.txt")
ENGLISH_WORDS = "scripts/data/synthetic/json/english_words.json"
DEPTHS = [round(i * (100 / 39)) for i in range(40)]  # of needles, in %
# Of each task: (template, settings)
NIAH = {"haystack": "essay", "key": "words", "value": "numbers", "keys": 1, "values": 1, "queries": 1}
TASKS = {
    "niah_single_1": ("niah", {**NIAH, "haystack": "noise"}), "niah_single_2": ("niah", NIAH), "niah_single_3": ("niah", {**NIAH, "value": "uuids"}),
    "niah_multikey_1": ("niah", {**NIAH, "keys": 4}), "niah_multikey_2": ("niah", {**NIAH, "haystack": "needle"}),
    "niah_multikey_3": ("niah", {**NIAH, "haystack": "needle", "key": "uuids", "value": "uuids"}),
    "niah_multivalue": ("niah", {**NIAH, "values": 4}), "niah_multiquery": ("niah", {**NIAH, "queries": 4}),
    "vt": ("variable_tracking", {}), "cwe": ("common_words_extraction", {}), "fwe": ("freq_words_extraction", {}),
    "qa_1": ("qa", {"source": "squad"}), "qa_2": ("qa", {"source": "hotpotqa"}),
}
HOPS, SHORT = 4, 4096  # of a chain of variables; shorter prompts have smaller steps and counts


class Sample(NamedTuple):
    context: str
    question: str
    answer_prefix: str
    answers: list
    tokens: int  # of prompt, template and answer prefix


class TooLong(Exception):
    """A draw that does not fit, or that the published script rejects."""


def sentences(text):
    """Returns the sentences of a text of one line: they end at . ! or ?, with closing quotes and brackets, before a space and no small letter."""
    return re.sub(r"([.!?][\"')\]]*) +(?=[^a-z ])", "\\1\n", text.strip()).split("\n")


def needs(name):
    """Returns the kind of the file that a task reads: "essay", "squad" or "hotpotqa"; None without a file."""
    kind, how = TASKS[name]
    return how.get("source") or ("essay" if how.get("haystack") == "essay" else None)


class Ruler:
    """Draws samples of a task.

    vocabulary: tokens.Tokenizer.  tokens: the maximum of prompt, template, answer prefix and answer.  raw: no chat template.  files: the files that
    needs() names.  words: the folder of the word lists of the package wonderwords."""

    def __init__(self, name, vocabulary, tokens, seed, repository, files=(), words=None, raw=False):
        self.kind, self.how = TASKS[name]
        self.name, self.tokens, self.seed, self.raw = name, tokens, seed, raw
        self.counted, self.repository, self.word_folder = vocabulary, repository, words
        told = published.constants(repository, CONSTANTS, ["TASKS"])["TASKS"][self.kind]
        self.template, self.prefix, self.limit = told["template"], told["answer_prefix"], told["tokens_to_generate"]
        self.random = random.Random(seed)
        getattr(self, "_open_" + self.kind)(files)

    def samples(self, n):
        """Yields n samples."""
        return getattr(self, "_samples_" + self.kind)(n)

    # ---- parts that tasks share

    def count(self, text, answer_prefix):
        return self.counted.count(text, self.raw, answer_prefix)

    def _text(self, template, prefix, **values):
        """Returns (context, question, answer prefix, count): the text before the end of {context}, the rest, and the tokens of all."""
        head, _, tail = template.partition("{context}")
        context, question, begin = head.format(**values) + values["context"], tail.format(**values), prefix.format(**values)
        return context, question, begin, self.count(context + question, begin)

    def _sample(self, drawn, answers, before=""):
        context, question, begin, tokens = drawn
        if before:
            context = before + context
            tokens = self.count(context + question, begin)
        return Sample(context, question, begin, answers, tokens)

    def _fit(self, draw, step, upper, extra=0):
        """Returns the largest size of a haystack that fits, by the published bisection; `step` if every size is too long."""
        lower, best = step, step
        upper = max(upper, 2 * step)
        while lower <= upper:
            middle = (lower + upper) // 2
            try:
                fits = draw(middle).tokens + extra + self.limit <= self.tokens
            except TooLong:
                fits = False
            if fits:
                best, lower = middle, middle + 1
            else:
                upper = middle - 1
        return best

    def _fitting(self, draw, size, step):
        """Returns a sample that fits.  A sample that does not loses one step of its haystack and is drawn again."""
        for _ in range(size // step + TRIES):
            try:
                sample = draw(size)
                if sample.tokens + self.limit <= self.tokens:
                    return sample
            except TooLong:
                pass
            if size > step:
                size -= step
        raise Error("ruler:%s: no sample fits into %d tokens, of which the answer takes %d; give more --tokens" % (self.name, self.tokens, self.limit))

    def _word_list(self, *names):
        found = []
        for name in names:
            path = os.path.join(self.word_folder, name)
            try:
                with open(path, encoding="utf-8") as f:
                    found.append([line.rstrip() for line in f])
            except OSError as e:
                raise Error("%s: cannot read: %s; --words names the folder of the word lists of the package wonderwords" % (path, e.strerror)) from None
        return found

    # ---- needles in a haystack

    def _open_niah(self, files):
        how = self.how
        read = published.constants(self.repository, NEEDLE, ["needle", "haystack"])
        self.needle, self.noise = read["needle"], read["haystack"]
        self.keys = max(how["keys"], how["queries"])
        if "words" in (how["key"], how["value"]):
            nouns, adjectives = self._word_list(*WORD_LISTS[:2])
            self.vocabulary = sorted({"%s-%s" % (a, n) for a in adjectives for n in nouns})
        if how["haystack"] == "essay":
            self.essay = re.sub(r"\s+", " ", published.essay(files[0])).split(" ")
        self.one = how["queries"] * how["values"] == 1
        if self.one:
            self.template, self.prefix = map(self._singular, (self.template, self.prefix))

    @staticmethod
    def _singular(text):
        for old, new in (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer")):
            text = text.replace(old, new)
        return text

    def _draw_text(self, kind):
        """Returns a random number of 7 digits, a word or a UUID."""
        if kind == "numbers":
            return str(self.random.randint(10 ** 6, 10 ** 7 - 1))
        return self.random.choice(self.vocabulary) if kind == "words" else str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def _needle(self, key, value):
        return self.needle.format(type_needle_v=self.how["value"], key=key, value=value)

    def _in_essay(self, size, needles):
        text = (self.essay * (-(-size // len(self.essay)) if size > len(self.essay) else 1))[:size]
        parts = sentences(" ".join(text))
        ends = [0, *sorted(int(len(parts) * (depth / 100)) for depth in self.random.sample(DEPTHS, len(needles))), len(parts)]
        context = []
        for i, end in enumerate(ends[1:]):
            context += [" ".join(parts[ends[i]:end]), *needles[i:i + 1]]
        return " ".join(context)

    def _in_lines(self, size, needles):
        if self.how["haystack"] == "noise":
            lines = [self.noise] * size
        else:
            lines = [self._needle(self._draw_text(self.how["key"]), self._draw_text(self.how["value"])) for _ in range(size)]
        for at, needle in zip(sorted(self.random.sample(range(size), len(needles)), reverse=True), needles):
            lines.insert(at, needle)
        return "\n".join(lines)

    def _draw_niah(self, size):
        how, keys, values, needles = self.how, [], [], []
        for _ in range(self.keys):
            keys.append(self._draw_text(how["key"]))
            values.append([])
            for _ in range(how["values"]):
                values[-1].append(self._draw_text(how["value"]))
                needles.append(self._needle(keys[-1], values[-1][-1]))
        random.Random(self.seed).shuffle(needles)
        context = (self._in_essay if how["haystack"] == "essay" else self._in_lines)(size, needles)
        asked = self.random.sample(range(self.keys), how["queries"])
        names = [keys[i] for i in asked]
        query = names[0] if len(names) == 1 else ", ".join(names[:-1]) + ", and " + names[-1]
        drawn = self._text(self.template, self.prefix, type_needle_v=how["value"][:-1] if self.one else how["value"], context=context, query=query)
        return self._sample(drawn, [a for i in asked for a in values[i]])

    def _samples_niah(self, n):
        essay = self.how["haystack"] == "essay"
        step = 500 if essay else 25 if self.tokens >= SHORT else 5
        each = self._draw_niah(step).tokens / step
        size = self._fit(self._draw_niah, step, int(self.tokens / each * 3))
        for _ in range(n):
            yield self._fitting(self._draw_niah, size, step)

    # ---- variable tracking

    def _open_variable_tracking(self, files):
        with needing("ruler:vt", "numpy"):
            import numpy
        self.noise = published.constants(self.repository, NEEDLE, ["haystack"])["haystack"]
        self.numbers = numpy.random.RandomState(self.seed)

    def _letters(self, n):
        return "".join(self.random.choices(string.ascii_uppercase, k=n))

    def _draw_chain(self, size, example=False):
        names = [self._letters(3 if example else 5) for _ in range(HOPS + 1)]
        if len(set(names)) <= HOPS:  # the published script fails here
            raise TooLong
        value = "12345" if example else str(self.numbers.randint(10000, 99999))
        chain = ["VAR %s = %s" % (names[0], value)] + ["VAR %s = VAR %s " % (b, a) for a, b in zip(names, names[1:])]
        lines = [self.noise] * size
        for i, at in enumerate(sorted(self.random.sample(range(size), len(chain)))):
            lines.insert(at + i, chain[i])
        context = "\n".join(lines).replace(". \n", ".\n")
        return self._sample(self._text(self.template, self.prefix, context=context, query=value, num_v=HOPS + 1), names)

    def _example(self):
        """Returns the solved example that begins each prompt, of at most 500 tokens; its names and its value are replaced in each sample."""
        before = self.limit, self.tokens, self.raw
        self.limit, self.tokens, self.raw = 0, 500, True
        def draw(size):
            return self._draw_chain(size, example=True)
        each = draw(5).tokens / 5
        made = self._fitting(draw, self._fit(draw, 5, int(500 / each * 3)), 5)
        self.limit, self.tokens, self.raw = before
        return "%s%s%s %s\n" % (made.context, made.question, made.answer_prefix, " ".join(made.answers))

    def _renamed(self, example):
        for name in example.strip().split()[-HOPS - 1:]:
            example = example.replace(name, self._letters(len(name)))
        return example.replace("12345", str(self.numbers.randint(10000, 99999)))

    def _samples_variable_tracking(self, n):
        example = self._example()
        step = 10 if self.tokens >= SHORT else 5
        each = self._draw_chain(step).tokens / step
        size = self._fit(self._draw_chain, step, int(self.tokens / each * 3), self.counted.count(example))
        def draw(size):
            made = self._draw_chain(size)
            return self._sample((made.context, made.question, made.answer_prefix, 0), made.answers, self._renamed(example) + "\n")
        for _ in range(n):
            yield self._fitting(draw, size, step)

    # ---- common words

    def _open_common_words_extraction(self, files):
        self.vocabulary = sorted({w for part in self._word_list(*WORD_LISTS) for w in part})
        random.Random(self.seed).shuffle(self.vocabulary)

    def _draw_list(self, size, common, rare):
        words = self.vocabulary
        if size > len(words):
            words = list(published.parsed(os.path.join(self.repository, ENGLISH_WORDS)).values())
        if size > len(words):
            raise Error("ruler:cwe: %d words are needed and the lists have %d; give fewer --tokens" % (size, len(words)))
        drawn = self.random.sample(words, size)
        listed = drawn[:10] * common + drawn[10:] * rare
        random.Random(self.seed).shuffle(listed)
        return " ".join("%d. %s" % (i, word) for i, word in enumerate(listed, 1)), drawn[:10]

    def _draw_words(self, size):
        short = self.tokens < SHORT
        example, solved = self._draw_list(20, 3, 1) if short else self._draw_list(40, 10, 3)
        context, common = self._draw_list(size, 6, 1) if short else self._draw_list(size, 30, 3)
        before = (self.template + self.prefix).format(context=example, query="", num_cw=10)
        before += " " + " ".join("%d. %s" % (i, word) for i, word in enumerate(solved, 1)) + "\n"
        return self._sample(self._text(self.template, self.prefix, context=context, query="", num_cw=10), common, before)

    def _samples_common_words_extraction(self, n):
        each = self._draw_words(4096).tokens / 4096
        size = self._fit(self._draw_words, 10, int(self.tokens // each) * 2)
        for _ in range(n):
            yield self._fitting(self._draw_words, size, 10)

    # ---- frequent words

    def _open_freq_words_extraction(self, files):
        with needing("ruler:fwe", "numpy"):
            import numpy
        self.numpy = numpy

    def _coded(self, vocabulary, n):
        """Returns a sample in which rank k of the vocabulary occurs int(n k^-2 / zeta(2)) times."""
        k = self.numpy.arange(1, len(vocabulary) + 1)
        times = (n * (k ** -2.0) / 1.6449340668482264).astype(int)
        words = [w for w, z in zip(vocabulary, times.tolist()) for _ in range(z)]
        random.Random(self.seed).shuffle(words)
        return self._sample(self._text(self.template, self.prefix, context=" ".join(words), query=""), vocabulary[1:4])

    def _draw_coded(self, most, n, step):
        """Draws a vocabulary.  Returns (sample, n) for the first of n, n - step, ... that fits.  Without n, returns only the largest n that fits."""
        size = most // 50
        names = ["".join(self.random.choices(string.ascii_lowercase, k=6)) for _ in range(size)]
        while len(set(names)) < size:
            names.append("".join(self.random.choices(string.ascii_lowercase, k=6)))
        vocabulary = sorted(set(names))
        random.Random(self.seed).shuffle(vocabulary)
        vocabulary[0] = "..."
        if n is None:
            n = most // 6
            while self._coded(vocabulary, n).tokens < most:
                n += step
            return None, n - step
        while self._coded(vocabulary, n).tokens > most:
            n -= step
            if n < 0:
                raise Error("ruler:fwe: the template does not fit into %d tokens; give more --tokens" % self.tokens)
        return self._coded(vocabulary, n), n

    def _samples_freq_words_extraction(self, n):
        most = self.tokens - self.limit
        if most < 256:
            raise Error("ruler:fwe: %d tokens are too few; give at least %d --tokens" % (self.tokens, 256 + self.limit))
        _, size = self._draw_coded(most, None, most // 32)
        for _ in range(n):
            yield self._draw_coded(most, size, most // 32)[0]

    # ---- questions among documents

    def _open_qa(self, files):
        self.form = published.constants(self.repository, DOCUMENT, ["DOCUMENT_PROMPT"])["DOCUMENT_PROMPT"]
        self.questions, self.documents = (squad if self.how["source"] == "squad" else hotpotqa)(files[0])

    def _draw_qa(self, index, size):
        question, answers, gold, near = self.questions[index]
        if size < len(self.documents):
            if size < len(gold):
                raise TooLong
            if size - len(gold) > len(near):
                known = set(gold + near)
                others = [i for i in range(len(self.documents)) if i not in known]
                chosen = gold + near + self.random.sample(others, max(0, size - len(gold) - len(near)))
            else:
                chosen = gold + self.random.sample(near, size - len(gold))
            texts = [self.documents[i] for i in chosen]
        else:
            texts = (self.documents * -(-size // len(self.documents)))[:size]
        random.Random(self.seed).shuffle(texts)
        context = "\n\n".join(self.form.format(i=i, document=text) for i, text in enumerate(texts, 1))
        return self._sample(self._text(self.template, self.prefix, context=context, query=question), answers)

    def _samples_qa(self, n):
        if n > len(self.questions):
            raise Error("ruler:%s: the file has %d questions, and %d are asked for" % (self.name, len(self.questions), n))
        each = self._draw_qa(0, 10).tokens / 10
        size = self._fit(lambda size: self._draw_qa(0, size), 10, int(self.tokens / each * 3))
        for index in range(n):
            yield self._fitting(lambda size, index=index: self._draw_qa(index, size), size, 10)


def squad(path):
    """Returns ([(question, answers, gold documents, documents of the same article)], documents) of the answerable questions of SQuAD 2.0."""
    data = published.parsed(path)
    with published.shaped(path, "SQuAD 2.0"):
        documents = sorted({p["context"] for d in data["data"] for p in d["paragraphs"]})
        at = {text: i for i, text in enumerate(documents)}
        found = []
        for d in data["data"]:
            article = [at[p["context"]] for p in d["paragraphs"]]
            for p in d["paragraphs"]:
                gold = at[p["context"]]
                found += [(q["question"], [a["text"] for a in q["answers"]], [gold], [i for i in article if i != gold])
                          for q in p["qas"] if not q["is_impossible"]]
    return found, documents


def hotpotqa(path):
    """Returns the same lists for HotpotQA, in which each question has ten gold documents and no list of an article."""
    data = published.parsed(path)
    with published.shaped(path, "HotpotQA"):
        texts = [["%s\n%s" % (title, "".join(parts)) for title, parts in d["context"]] for d in data]
        documents = sorted({t for part in texts for t in part})
        at = {text: i for i, text in enumerate(documents)}
        found = [(d["question"], [d["answer"]], [at[t] for t in part], []) for d, part in zip(data, texts)]
    return found, documents
