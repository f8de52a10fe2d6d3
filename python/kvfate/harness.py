"""A model class for lm-evaluation-harness (https://github.com/EleutherAI/lm-evaluation-harness): any task under any cache method.

    python -m kvfate.harness --model kvfate --model_args model=FILE.gguf,method=snapkv,budget=128 --tasks hellaswag

What --model_args may have is what kvfate.Scores takes.  Log-probabilities of choices, rolling ones and generated answers are
supported; a text that is longer than the model's context is refused with kvfate's sentence."""
import sys

from .errors import needing
from .scores import Scores

try:
    with needing("kvfate.harness", "lm_eval"):
        from lm_eval.api.model import LM
        from lm_eval.api.registry import register_model
except ImportError as e:
    if __name__ == "__main__":
        sys.exit("kvfate: %s" % e)
    raise

MOST = 256  # tokens of an answer where the task says nothing


def apart(context, continuation):
    """Blanks at the end of a context belong to the token that follows them."""
    kept = context.rstrip()
    return kept, context[len(kept):] + continuation


@register_model("kvfate")
class Kvfate(LM):
    def __init__(self, model=None, method="full", budget=None, batch_size=None, max_batch_size=None, device=None, **options):
        super().__init__()  # batch_size and device are what the harness gives every model class; a batch is all of a task here
        self._scores = Scores(model=model, method=method, budget=budget, **options)

    def loglikelihood(self, requests, disable_tqdm=False):
        return [(x.logprob, x.greedy) for x in self._scores.continuations([apart(*r.args) for r in requests])]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        return [x.logprob for x in self._scores.continuations([("", r.args[0]) for r in requests])]

    def generate_until(self, requests, disable_tqdm=False):
        answers, cut = [None] * len(requests), 0
        groups = {}  # requests that agree in how an answer ends are one batch
        for i, r in enumerate(requests):
            context, how = r.args
            until = how.get("until") or []
            until = (until,) if isinstance(until, str) else tuple(until)
            temperature = float(how.get("temperature") or 0) if how.get("do_sample") else 0.0
            key = int(how.get("max_gen_toks") or MOST), tuple(u for u in until if u), temperature
            groups.setdefault(key, []).append((i, context))
        for (most, until, temperature), members in groups.items():
            for (i, _), answer in zip(members, self._scores.answers_told([c for _, c in members], most, until, temperature)):
                answers[i] = answer.text
                cut += answer.stop == "context"
        if cut:
            print("kvfate: note: the model's context ended %d of %d answers" % (cut, len(requests)), file=sys.stderr)
        return answers


def main():
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError:
        sys.exit("kvfate.harness: this lm_eval has no command line; call lm_eval.simple_evaluate(model=kvfate.harness.Kvfate(...))")
    cli_evaluate()


if __name__ == "__main__":
    main()
