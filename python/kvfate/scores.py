"""What a model says of texts under a cache method: log-probabilities of continuations, and answers.

    scores = kvfate.Scores(model="SmolLM2.gguf", method="snapkv", budget=128)
    scores.continuations([("The capital of France is", " Paris"), ("The capital of France is", " London")])
    scores.answers(["Once upon a time"], most=32, until=["."])

All texts of a call are one batch of `kvfate generate --jsonl`: the model is loaded once.  A text is the prompt: it is
prefilled, the method cuts the cache to its budget, and the continuation is fed or the answer sampled under it."""
import json
import subprocess
from typing import NamedTuple

from . import files, program


class Continuation(NamedTuple):
    logprob: float  # of all its tokens together, in nats; each under the cache that the method left
    greedy: bool  # every token of it was the likeliest
    tokens: int


class Answer(NamedTuple):
    text: str
    stop: str  # why it ends: "eos", "until" (one of these texts), "length" (so many tokens) or "context" (no room for more)
    tokens: int


class Scores:
    """model: a GGUF file or a folder (None: the default one); method, budget and further options are those of `kvfate generate`, with
    _ for -: gates="file", kv_type="f32", threads=4, exact=True.  budget="25%" is a fraction of each prompt."""

    def __init__(self, model=None, method="full", budget=None, **options):
        self._words = program.words_of({"model": model, "method": method, "budget": budget, **options})

    def continuations(self, pairs):
        """A Continuation for each pair of a text and what follows it.  The tokens of a continuation are those that it adds to the tokens of
        the text; before an empty text stands the mark of the start, or of the end where the vocabulary has no other."""
        said = self._batch([{"text": text, "continuation": more} for text, more in pairs])
        return [Continuation(x["logprob"], x["greedy"], x["tokens"]) for x in said]

    def answers(self, texts, most=128, until=(), temperature=0.0, seed=0):
        """The text of the answer to each text, of at most `most` tokens; it ends before the first of the texts `until`."""
        return [x.text for x in self.answers_told(texts, most, until, temperature, seed)]

    def answers_told(self, texts, most=128, until=(), temperature=0.0, seed=0):
        """The same as a list of Answer, which tells why each answer ends."""
        said = self._batch([{"text": t, "n": most, "seed": seed, **({"until": list(until)} if until else {})} for t in texts],
                           *program.words_of({"temp": temperature}))
        return [Answer(x["text"], x["stop"], x["tokens"]) for x in said]

    def _batch(self, lines, *words):
        if not lines:
            return []
        with files.scratch("lines.jsonl", "".join(json.dumps({"id": "%d" % i, **line}) + "\n" for i, line in enumerate(lines))) as path:
            done = subprocess.run([program.find(), "generate", "--jsonl", path, *self._words, *words], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = {x["id"]: x for x in map(json.loads, done.stdout.decode("utf-8", "replace").splitlines())}
        if done.returncode or len(said) != len(lines):
            why = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.startswith("kvfate")]
            raise program.ProgramError(why[0] if why else "kvfate ended with status %d" % done.returncode, done.returncode)
        return [said["%d" % i] for i in range(len(lines))]
