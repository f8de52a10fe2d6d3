"""Log-probabilities of continuations, and answers, of a model under a cache method.

    scores = kvfate.Scores(model="SmolLM2.gguf", method="snapkv", budget=128)
    scores.continuations([("The capital of France is", " Paris"), ("The capital of France is", " London")])
    scores.answers(["Once upon a time"], most=32, until=["."])

All texts of a call are one batch of `kvfate generate --jsonl`: the model is loaded once.  A text is the prompt: it is
prefilled, the method cuts the cache to its budget, and the continuation is fed or the answer sampled under it."""
import json
import subprocess
from typing import NamedTuple, Optional

from . import files, program


class Continuation(NamedTuple):
    logprob: float  # of all its tokens together, in nats; each under the cache that the method left
    greedy: bool  # every token of it was the likeliest
    tokens: int


class Answer(NamedTuple):
    text: str
    stop: str  # why it ends: "eos", "until" (one of these texts), "length" (the maximum number of tokens) or "context" (its end)
    tokens: int
    ids: Optional[list] = None  # its tokens, if the prompt was given as ids


def _key(text):
    return "text" if isinstance(text, str) else "ids"


class Scores:
    """model: a GGUF file or a folder (None: the default one); method, budget and further arguments are options of `kvfate generate`, with
    _ for -: gates="file", kv_type="f32", threads=4, exact=True.  budget="25%" is a fraction of each prompt.  Texts may be given as lists of token ids, too (kvfate.Tokenizer)."""

    def __init__(self, model=None, method="full", budget=None, **options):
        self._words = program.words_of({"model": model, "method": method, "budget": budget, **options})

    def continuations(self, pairs):
        """A Continuation for each pair of a text and its continuation, or of ids and ids.  A continuation has the tokens that it adds
        to the tokens of the text.  An empty text becomes the start mark, or the end mark if the vocabulary has no start mark."""
        said = self.lines([{_key(text): text, "continuation": more} for text, more in pairs])
        return [Continuation(x["logprob"], x["greedy"], x["tokens"]) for x in said]

    def answers(self, texts, most=128, until=(), temperature=0.0, seed=0):
        """The text of the answer to each text, of at most `most` tokens; it ends before the first of the texts `until`."""
        return [x.text for x in self.answers_told(texts, most, until, temperature, seed)]

    def answers_told(self, texts, most=128, until=(), temperature=0.0, seed=0):
        """A list of Answer for the same arguments, with the reason for the end of each answer."""
        said = self.lines([{_key(t): t, "n": most, "seed": seed, **({"until": list(until)} if until else {})} for t in texts],
                          temp=temperature)
        return [Answer(x["text"], x["stop"], x["tokens"], x.get("ids")) for x in said]

    def lines(self, lines, **options):
        """The objects that `kvfate generate --jsonl` prints for lines without "id", in the order of the lines."""
        if not lines:
            return []
        words = program.words_of(options)
        with files.scratch("lines.jsonl", "".join(json.dumps({"id": "%d" % i, **line}) + "\n" for i, line in enumerate(lines))) as path:
            done = subprocess.run([program.find(), "generate", "--jsonl", path, *self._words, *words], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = {x["id"]: x for x in map(json.loads, done.stdout.decode("utf-8", "replace").splitlines())}
        if done.returncode or len(said) != len(lines):
            why = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.startswith("kvfate")]
            raise program.ProgramError(why[0] if why else "kvfate ended with status %d" % done.returncode, done.returncode)
        return [said["%d" % i] for i in range(len(lines))]
