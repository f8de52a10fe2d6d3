"""A model class for lm-evaluation-harness (https://github.com/EleutherAI/lm-evaluation-harness): any task under any cache method.

    python -m kvfate.harness --model kvfate --model_args model=FILE.gguf,method=snapkv,budget=128 --tasks hellaswag

The class treats texts as the harness's class for transformers does.  It moves blanks at the end of a context to the continuation.  It drops
tokens from the left of a context that is too long, and warns.  It scores a long document in windows.  Tokens, chat templates, log-likelihoods
and answers are those of the program.  The context is the prompt.  It is prefilled, the method cuts the cache, and continuation or answer follow
under the cut cache.  An argument without effect is rejected by name."""
import hashlib
import json
import logging
import os
import sys

from . import program
from .errors import Error, meant, needing
from .scores import Scores
from .tokens import Tokenizer

try:
    with needing("kvfate.harness", "lm_eval"):
        from lm_eval.api.model import TemplateLM
        from lm_eval.api.registry import register_model
        from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as e:
    if __name__ == "__main__":
        sys.exit("kvfate: %s" % e)
    raise

LOG = logging.getLogger(__name__)
# Options of `kvfate generate` that are not arguments of the class, with a remedy.
SET_BY_CLASS = {
    **dict.fromkeys(("prompt", "file", "chat", "ids", "raw", "jsonl"), "the task has the texts"),
    **dict.fromkeys(("temp", "top_p"), "give temperature and top_p in --gen_kwargs, with do_sample=True"),
    **dict.fromkeys(("think", "no_think"), "give enable_thinking"), "predict": "give max_gen_toks", "shard": "give --limit or --samples",
    **dict.fromkeys(("methods", "budgets"), "give one method and one budget"), **dict.fromkeys(("json", "quiet"), "it changes no result"),
}
SPEED = ("threads", "together", "room")  # options that change no result
# Arguments of transformers' generate() that the program lacks, and the value that has no effect.
NEUTRAL = {"num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1, "length_penalty": 1, "no_repeat_ngram_size": 0}


class ArgumentError(Error, ValueError):
    """An argument of the model class, or of a request, that cannot be honoured."""


def check_options(options):
    """Rejects names that are not options of `kvfate generate`, and options that the class sets."""
    command = next(c for c in program.described()["commands"] if c["name"] == "generate")
    known = {o["name"].replace("-", "_") for o in command["options"]} - set(SET_BY_CLASS)
    for name in options:
        if name in SET_BY_CLASS:
            raise ArgumentError("kvfate.harness: %s is not an argument of the model: %s" % (name, SET_BY_CLASS[name]))
        if name not in known:
            raise ArgumentError("kvfate.harness: the model has no argument %s%s; 'kvfate generate -h' lists its options" % (
                name, meant(name, known)))


def device_option(device):
    """The value of --device for a device of the harness."""
    known = {None: None, "cpu": "cpu", "cuda": "cuda", "cuda:0": "cuda", "auto": "auto"}
    if device not in known:
        raise ArgumentError("kvfate.harness: device %s is not supported; give cpu, cuda or auto" % device)
    return known[device]


def batch_option(batch_size):
    """The value of --together for a batch size of the harness; None for "auto" and for the harness's default of 1: the program decides."""
    text = str(batch_size)
    if batch_size is None or text == "1" or text.partition(":")[0] == "auto":
        return None
    if not text.isdigit() or not 1 <= int(text) <= 64:
        raise ArgumentError("kvfate.harness: batch_size %s is not supported; give auto or a number from 1 to 64" % text)
    return int(text)


def sampling(kwargs):
    """The options --temp and --top-p for the arguments of transformers' generate() that are left in normalised kwargs."""
    kwargs = dict(kwargs)
    sample, temperature, top_p, top_k = (kwargs.pop(x, None) for x in ("do_sample", "temperature", "top_p", "top_k"))
    for name, value in kwargs.items():
        if value is not None and value != NEUTRAL.get(name):
            raise ArgumentError("kvfate.harness: the generation argument %s=%r is not supported; leave it out" % (name, value))
    if not sample:
        return {}
    if not temperature:
        raise ArgumentError("kvfate.harness: do_sample=True needs a temperature over 0; give temperature=1.0, or do_sample=False")
    if top_k:
        raise ArgumentError("kvfate.harness: the generation argument top_k=%r is not supported; give top_k=0 or top_p" % top_k)
    return {"temp": float(temperature), **({} if top_p is None else {"top_p": float(top_p)})}


@register_model("kvfate")
class Kvfate(TemplateLM):
    """A model under a cache method.

    model or pretrained: a GGUF file or a folder.  method, budget and all further arguments are options of `kvfate generate`, with _ for -.
    max_length or context: the maximum number of tokens of prompt and answer; the model's context by default.  max_gen_toks: tokens of an answer
    if the task does not limit it.  add_bos_token: whether texts get the start mark; by default the model's tokenizer decides.
    prefix_token_id: the token before a text without a context.  enable_thinking, chat_template_args: the switch of the chat template, and the same
    in a dict.  think_end_token: a text or id; the answer begins after it.  batch_size: --together."""

    def __init__(self, model=None, method="full", budget=None, pretrained=None, batch_size=None, max_batch_size=None, device=None, max_length=None,
                 context=None, max_gen_toks=256, add_bos_token=None, prefix_token_id=None, enable_thinking=None, think_end_token=None,
                 chat_template_args=None, seed=0, **options):
        super().__init__()
        self.max_batch_size = max_batch_size  # a limit of batch_size=auto, which the program chooses
        check_options(options)
        if model is not None and pretrained is not None:
            raise ArgumentError("kvfate.harness: model and pretrained name one thing; give one of them")
        if max_length is not None and context is not None:
            raise ArgumentError("kvfate.harness: max_length and context name one thing; give one of them")
        template = json.loads(chat_template_args) if isinstance(chat_template_args, str) else dict(chat_template_args or {})
        enable_thinking = template.pop("enable_thinking", enable_thinking)
        if template:
            raise ArgumentError("kvfate.harness: chat_template_args has %s, and only enable_thinking is supported" % ", ".join(sorted(template)))
        if enable_thinking and think_end_token is None:
            raise ArgumentError("kvfate.harness: enable_thinking=True needs think_end_token, the text or id that ends a thought")
        model = model if model is not None else pretrained
        length = max_length if max_length is not None else context
        if length is None and "rope_scale" in options:
            raise ArgumentError("kvfate.harness: rope_scale changes the context; give max_length too")
        if (together := batch_option(batch_size)) is not None:
            options.setdefault("together", together)
        date = options.pop("date", None)
        self.tokenizer = Tokenizer(model, options.get("pre"), enable_thinking, date)
        self.enable_thinking, self.add_bos_token, self.max_gen_toks = enable_thinking, add_bos_token, int(max_gen_toks)
        self.think_end_token = int(think_end_token) if str(think_end_token).isdigit() else think_end_token
        self._max_length, self._prefix, self._seed, self._marks = length and int(length), prefix_token_id, int(seed), {}
        options = {"context": length, "device": device_option(device), **options}
        self._scores = Scores(model=model, method=method, budget=budget, **options)
        self._is = {"model": None if model is None else os.path.abspath(model), "method": method, "budget": budget, "seed": self._seed, "date": date,
                    "add_bos_token": add_bos_token, "prefix_token_id": prefix_token_id, "enable_thinking": enable_thinking,
                    "think_end_token": think_end_token, **{k: v for k, v in options.items() if k not in SPEED and v is not None}}

    # ---- facts about the model

    @property
    def eot_token_id(self):
        return self.tokenizer.eos

    @property
    def prefix_token_id(self):
        return self.tokenizer.start if self._prefix is None else int(self._prefix)

    @property
    def max_length(self):
        return self._max_length or self.tokenizer.context

    @property
    def tokenizer_name(self):
        """The name of the tokenizer and the template in the keys of cached requests.  It differs if either differs."""
        parts = [self.tokenizer.hash, self.tokenizer.template, self.enable_thinking, self._is["date"]]
        name = "".join(c if c.isalnum() or c in "-._" else "_" for c in self.tokenizer.name)
        return "kvfate-%s-%s" % (name, hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16])

    def get_model_info(self):
        """What the harness adds to the configuration in its results."""
        return {"kvfate_version": program.described()["version"], "model_name": self.tokenizer.name, "method": self._is["method"],
                "budget": self._is["budget"], "max_length": self.max_length,
                "protocol": "the context is the prompt; the method sees all of it and cuts the cache after it; continuation or answer follow under "
                            "the cut cache, token by token",
                "kvfate_options": {k: v for k, v in self._is.items() if k not in ("model", "method", "budget") and v is not None}}

    def set_cache_hook(self, cache_hook):
        """Rejects a cache of answers (--use_cache) of another method, budget or option.  Its keys contain only the requests."""
        cached, own = cache_hook.dbdict, json.dumps(self._is, sort_keys=True)
        if cached is not None:
            held = cached.get("kvfate")
            if held != own and (held is not None or len(cached)):
                raise ArgumentError("kvfate.harness: the cache has answers of %s; give --use_cache another name" % (
                    held or "another model class"))
            cached["kvfate"] = own
        super().set_cache_hook(cache_hook)

    # ---- tokens and templates

    def tok_encode(self, string, add_special_tokens=None, left_truncate_len=None):
        """The ids of a text.  add_special_tokens: as for a tokenizer of transformers; None adds no second start mark."""
        start = self.add_bos_token
        if add_special_tokens is not None or self._begins(string):
            start = False
        ids = self.tokenizer.encode(string, start)
        if add_special_tokens and self.tokenizer.bos is not None and (self.tokenizer.adds_bos if self.add_bos_token is None else self.add_bos_token):
            ids = [self.tokenizer.bos] + ids
        return ids[-left_truncate_len:] if left_truncate_len else ids

    def _begins(self, string):
        """Whether a text begins with the name of the token before a text."""
        token = self.prefix_token_id
        if token not in self._marks:
            self._marks[token] = "" if token is None else self.tok_decode([token], skip_special_tokens=False)
        return self._marks[token] != "" and string.startswith(self._marks[token])

    def tok_decode(self, tokens, skip_special_tokens=True):
        return self.tokenizer.decode([tokens] if isinstance(tokens, int) else tokens, marks=not skip_special_tokens)

    def tok_batch_encode(self, strings, padding_side="left", left_truncate_len=None):
        """Two arrays [texts][tokens]: ids, padded with the end mark, and 1 for each token that is no padding."""
        import numpy
        rows = [self.tok_encode(s, left_truncate_len=left_truncate_len) for s in strings]
        width = max(map(len, rows))
        ids, mask = numpy.full((len(rows), width), self.eot_token_id), numpy.zeros((len(rows), width), int)
        for i, row in enumerate(rows):
            at = slice(width - len(row), width) if padding_side == "left" else slice(0, len(row))
            ids[i, at], mask[i, at] = row, 1
        return ids, mask

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        """The prompt of messages.  If add_generation_prompt is not set, the answer continues the last message.  If the template rejects system messages,
        the prompt is made without them, as in the harness's class for transformers."""
        try:
            return self.tokenizer.render(chat_history, continued=not add_generation_prompt)
        except program.ProgramError as e:
            others = [m for m in chat_history if m["role"] != "system"]
            if len(others) in (0, len(chat_history)):
                raise
            LOG.warning("%s: rendering without the messages of the system", e)
            return self.tokenizer.render(others, continued=not add_generation_prompt)

    def chat_template(self, chat_template=False):
        """The text of the chat template; None if chat_template is not set."""
        if chat_template is False or chat_template is None:
            return None
        if chat_template not in (True, "default"):
            raise ArgumentError("kvfate.harness: the chat template %s is not supported; the model's own is, with --apply_chat_template and no name" %
                                chat_template)
        if self.tokenizer.template is None:
            raise ArgumentError("kvfate.harness: the model has no chat template; leave out --apply_chat_template")
        return self.tokenizer.template

    # ---- requests

    def loglikelihood(self, requests, disable_tqdm=False):
        if self.enable_thinking:
            tasks = ", ".join(sorted({r.task_name for r in requests if r.task_name}))
            raise ArgumentError("kvfate.harness: enable_thinking=True is for tasks that generate, and %s scores given texts" % (tasks or "this task"))
        for r in requests:
            if not r.args[1]:
                raise ArgumentError("kvfate.harness: a continuation of the task %s is empty" % r.task_name)
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, override_bs=None):
        """(log-likelihood, greedy) of each (key, ids of the context, ids of the continuation).  Equal requests are computed once."""
        pairs, cut = [], 0
        for _, context, continuation in requests:
            n = len(continuation)
            if not n or not context:
                raise ArgumentError("kvfate.harness: a request has no %s tokens; the vocabulary merges them, or has no start mark" % (
                    "context" if n else "continuation"))
            if n > self.max_length:
                raise ArgumentError("kvfate.harness: a continuation has %d tokens, over the maximum length of %d; give a larger max_length" % (
                    n, self.max_length))
            whole = (context + continuation)[-(self.max_length + 1):]  # the last one is predicted and not fed
            cut += len(whole) < len(context) + n
            pairs.append((tuple(whole[:-n]), tuple(whole[-n:])))
        self._say_cut(cut, len(requests))
        once = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        told = self._scores.continuations(list(once))
        answers = [(told[once[pair]].logprob, told[once[pair]].greedy) for pair in pairs]
        for (key, _, _), answer in zip(requests, answers):
            if key is not None:
                self.cache_hook.add_partial("loglikelihood", key, answer)
        return answers

    def _say_cut(self, cut, of):
        if cut:
            LOG.warning("kvfate: %d of %d contexts were longer than max_length %d allows, and lost tokens on the left", cut, of, self.max_length)

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        windows, of = [], []
        for i, r in enumerate(requests):
            for window in get_rolling_token_windows(self.tok_encode(r.args[0]), self.prefix_token_id, self.max_length, context_len=1):
                windows.append((None, *make_disjoint_window(window)))
                of.append(i)
        sums = [0.0] * len(requests)
        for i, (logprob, _) in zip(of, self._loglikelihood_tokens(windows)):
            sums[i] += logprob
        for r, total in zip(requests, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", r.args, total)
        return sums

    def _model_generate(self, context, max_length=None, stop=(), max_new_tokens=None, seeds=None, **kwargs):
        """Each row of ids with its answer, of at most max_new_tokens tokens, or of max_length tokens together.  An answer ends at the end mark, or
        when its text contains a text of stop."""
        rows = [[int(i) for i in row] for row in context]
        stop = [x for x in stop if x]
        lines = [{"ids": row, "n": max_length - len(row) if max_new_tokens is None else max_new_tokens, **({"until": stop} if stop else {})}
                 for row in rows]
        how = sampling(kwargs)
        if how:  # equal prompts of repeated requests have different draws
            lines = [{**line, "seed": seed} for line, seed in zip(lines, seeds or range(self._seed, self._seed + len(rows)))]
        return [row + said["ids"] for row, said in zip(rows, self._scores.lines(lines, **how))]

    def generate_until(self, requests, disable_tqdm=False):
        answers, cut = [None] * len(requests), 0
        groups = {}  # requests with equal arguments are one batch
        eos = None if self.eot_token_id is None else self.tok_decode([self.eot_token_id], skip_special_tokens=False)
        for i, r in enumerate(requests):
            groups.setdefault(json.dumps(r.args[1], sort_keys=True), []).append(i)
        for members in groups.values():
            how = normalize_gen_kwargs(requests[members[0]].args[1], self.max_gen_toks)
            until, most = handle_stop_sequences(how.pop("until"), eos), how.pop("max_gen_toks")
            room = self.max_length - most
            if room < 1:
                raise ArgumentError("kvfate.harness: max_gen_toks %d leaves no room for a prompt in max_length %d; give smaller max_gen_toks" % (
                    most, self.max_length))
            prompts = [self.tok_encode(requests[i].args[0]) for i in members]
            cut += sum(len(p) > room for p in prompts)
            prompts = [p[-room:] for p in prompts]
            rows = self._model_generate(prompts, stop=until, max_new_tokens=most, seeds=[self._seed + i for i in members], **how)
            for i, prompt, row in zip(members, prompts, rows):
                answers[i] = self._text_of(row[len(prompt):], until)
                self.cache_hook.add_partial("generate_until", requests[i].args, answers[i])
        self._say_cut(cut, len(requests))
        return answers

    def _text_of(self, ids, until):
        """The text of an answer after its thought and before the first text of until."""
        end = self.think_end_token
        if isinstance(end, int) and end in ids:
            ids = ids[len(ids) - ids[::-1].index(end):]
        text = self.tok_decode(ids)
        text = text.lstrip() if isinstance(end, int) else text
        return postprocess_generated_text(text, until, end if isinstance(end, str) else None)


def main():
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError:
        sys.exit("kvfate.harness: this lm_eval has no command line; call lm_eval.simple_evaluate(model=kvfate.harness.Kvfate(...))")
    cli_evaluate()


if __name__ == "__main__":
    main()
