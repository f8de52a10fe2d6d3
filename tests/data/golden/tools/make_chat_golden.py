#!/usr/bin/env python3
"""Write the golden file of chat templates: what the transformers library makes of templates and of messages.

usage: make_chat_golden.py MODEL.gguf -o chat_golden.json

The first template is that of MODEL, byte for byte; the others are those of chat_templates.py.  Each is rendered over the
conversations of chat_conversations.py, with and without the mark of the answer, and with enable_thinking where it asks for it.
The messages of chat_records.py, given as JSON, are rendered by each of its templates.
The lines of chat_snippets.py are rendered once each; "text" null says that the library refuses them.
"""
import argparse
import datetime
import json

import jinja2
import transformers
import transformers.utils.chat_template_utils as library
from chat_conversations import CONVERSATIONS
from chat_records import RECORDS, SHOWS
from chat_snippets import CONTEXT, snippets
from chat_templates import OWN
from gguf import GGUFReader

DATE = "2026-11-23"


class Today(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(DATE)


def render(text, tools=None, **context):
    try:
        return library._compile_jinja_template(text).render(tools=tools, documents=None, **context)
    except (jinja2.TemplateError, TypeError):
        return None


def cases(named):
    for i, (_, text) in enumerate(named):
        for k, c in enumerate(CONVERSATIONS):
            for generation in (False, True):
                for think in (0, 1, 2) if "enable_thinking" in text else (0,):
                    switch = {"enable_thinking": think == 1} if think else {}
                    messages = [{"role": role, "content": content} for role, content in c]
                    yield {"template": i, "conversation": k, "generation": generation, "think": think,
                           "text": render(text, messages=messages, add_generation_prompt=generation, bos_token="<s>", eos_token="</s>", **switch)}


def records():
    """Each conversation twice: its array alone where it has no tools, and as an object."""
    for messages, tools in RECORDS:
        given = [{"messages": messages, "tools": tools}] + ([messages] if tools is None else [])
        for template in SHOWS:
            for escape in (False, True):
                yield {"template": template, "json": json.dumps(given[escape % len(given)], ensure_ascii=escape),
                       "text": render(template, tools=tools, messages=messages, add_generation_prompt=True)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("-o", "--output", required=True)
    o = p.parse_args()
    library.datetime = Today
    named = [("default model", GGUFReader(o.model).fields["tokenizer.chat_template"].contents())] + OWN
    parts = {"templates": [{"name": n, "text": t} for n, t in named],
             "conversations": [[{"role": role, "content": content} for role, content in c] for c in CONVERSATIONS],
             "cases": cases(named), "records": records(), "snippet_messages": CONTEXT["messages"],
             "snippets": [{"template": s, "text": render(s, add_generation_prompt=False, **CONTEXT)} for s in snippets()]}
    with open(o.output, "w") as f:
        f.write(json.dumps({"versions": {"jinja2": jinja2.__version__, "transformers": transformers.__version__}, "date": DATE})[:-1])
        for key, rows in parts.items():
            f.write(f',\n"{key}": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]")
        f.write("}\n")


main()
