"""The tokenizer and the chat template of a model, from `kvfate tokenize`.

    tokenizer = kvfate.Tokenizer(model="SmolLM2.gguf")
    ids = tokenizer.encode("Once upon a time")
    tokenizer.decode(ids)
    tokenizer.render([{"role": "user", "content": "Hello"}])

One process of the program answers all calls.  It reads no weights, so it starts at once."""
import json
import subprocess
import weakref

from . import program


def _end(process):
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()
    process.wait()


class Tokenizer:
    """The tokenizer of a model.

    model: a GGUF file or a folder; the default model if not given.  pre: as --pre.  think: the switch enable_thinking of the chat template; by default the
    template decides.  date: YYYY-MM-DD, the day that the template prints.

    name, vocabulary and context are the name of the model, the number of its tokens and its maximum number of positions.  bos and eos are the ids
    of the start mark and the end mark, start is the id of the token before a text (the start mark, otherwise the end mark), each None if the
    vocabulary lacks it.  adds_bos: encode() adds the start mark by default.  template is the text of the chat template or None.  hash identifies
    the vocabulary and the merges."""

    def __init__(self, model=None, pre=None, think=None, date=None):
        words = program.words_of({"model": model, "pre": pre, "think": think is True, "no_think": think is False, "date": date})
        self._process = subprocess.Popen([program.find(), "tokenize", "--jsonl", "-", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE)
        self.close = weakref.finalize(self, _end, self._process)
        facts = self._ask({"model": True})
        self.name, self.hash, self.vocabulary, self.context = facts["name"], facts["tokenizer"], facts["vocabulary"], facts["context"]
        self.bos, self.eos, self.start, self.template = map(facts.get, ("bos", "eos", "start", "template"))
        self.adds_bos = facts["adds_bos"]

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.close()

    def encode(self, text, start=None):
        """The ids of a text.  The name of a control token in it becomes this token.  start: True adds the start mark before a text that does not
        begin with it, False never does; by default the model's tokenizer decides."""
        return self._ask({"text": text, **({} if start is None else {"start": start})})["ids"]

    def decode(self, ids, marks=True):
        """The text of ids.  marks: with the names of control tokens.  Bytes that are not UTF-8 become U+FFFD."""
        return self._ask({"ids": [int(i) for i in ids], "marks": marks})["text"]

    def render(self, messages, continued=False, tools=None):
        """The prompt that the chat template makes of messages.  It ends with the mark that begins an answer, or if continued is set, with the
        content of the last message."""
        return self._ask({"messages": messages, "continue": continued, **({"tools": tools} if tools else {})})["text"]

    def count(self, text, raw=True, answer_prefix=""):
        """The number of tokens of a text and of the beginning of an answer.  raw=False: of a user message in the chat template, if there is one."""
        return self.count_chat([{"role": "user", "content": text}], answer_prefix) if not raw and self.template else len(self.encode(text + answer_prefix))

    def count_chat(self, messages, answer_prefix=""):
        """The number of tokens of messages in the chat template and of the beginning of an answer."""
        return len(self.encode(self.render(messages) + answer_prefix, start=False))

    def _ask(self, line):
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the program has ended; its sentence follows
        said = self._process.stdout.readline()
        if not said:
            why = self._process.stderr.read().decode("utf-8", "replace").splitlines()
            code = self._process.wait()
            raise program.ProgramError(why[-1] if why else "kvfate ended with status %d" % code, code)
        answer = json.loads(said)
        if "error" in answer:
            raise program.ProgramError("kvfate tokenize: " + answer["error"], 1)
        return answer
