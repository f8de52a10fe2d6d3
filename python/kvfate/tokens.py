"""Tokens of a model's vocabulary, counted and decoded by `kvfate tokenize`, which runs as long as the object is open.

    with Tokens("model.gguf") as t:
        t.count("Once upon a time"); t.text(t.ids("Once upon a time")[:2])"""
import json
import subprocess

from . import program
from .errors import Error


class Tokens:
    """model: a GGUF file or a folder; None is the default one."""

    def __init__(self, model=None):
        words = ["-m", model] if model else []
        self._process = subprocess.Popen([program.find(), "tokenize", "--ids", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.close()

    def close(self):
        """Ends the program."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.stderr.close()
        self._process.wait()

    def _ask(self, **line):
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
            told = self._process.stdout.readline()
        except BrokenPipeError:
            told = b""
        if not told:
            said = self._process.stderr.read().decode("utf-8", "replace").splitlines()
            sentence = said[-1] if said else "kvfate tokenize ended"
            raise Error(sentence[len("kvfate tokenize: "):] if sentence.startswith("kvfate tokenize: ") else sentence)
        return json.loads(told)

    def ids(self, text):
        """Returns the token ids of a text without the chat template."""
        return self._ask(text=text)["ids"]

    def count(self, text, raw=True, answer_prefix=""):
        """Returns the number of tokens of a text and the beginning of an answer; raw=False: of a user message in the chat template."""
        return self._ask(**{"text" if raw else "prompt": text}, answer_prefix=answer_prefix)["tokens"]

    def count_chat(self, messages, answer_prefix=""):
        """Returns the number of tokens of messages in the chat template."""
        return self._ask(messages=messages, answer_prefix=answer_prefix)["tokens"]

    def text(self, ids):
        """Returns the text of token ids without control tokens."""
        return self._ask(ids=list(ids))["text"]
