#!/usr/bin/env python3
"""Write the golden file of chat templates: what Jinja2 itself makes of a template and of messages.

usage: make_chat_golden.py MODEL.gguf -o chat_golden.json

The first template is that of MODEL, byte for byte; the others have the forms that published ChatML templates have.
Templates are rendered with the options that the transformers library sets (trim_blocks, lstrip_blocks).
"""
import argparse
import json

import jinja2
from gguf import GGUFReader

TURN = "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
TURNS = "{% for message in messages %}" + TURN + "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
FIRST = "{% if messages[0]['role'] != 'system' %}{{ TEXT }}{% endif %}"

# The branches of Qwen2.5: two with code before the text of the message, then the text.
QWEN25 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query." }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
# The branches of Qwen3, which has no default message.
QWEN3 = QWEN25.replace("""    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
""", "").replace("""    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
""", "")


def written(text):
    """A template whose default message is the Jinja string `text`."""
    return FIRST.replace("TEXT", text) + TURNS


def templates(model):
    own = GGUFReader(model).fields["tokenizer.chat_template"].contents()
    return [("default model", own),
            ("default model, line feeds escaped", own.replace("\n", "\\n")),
            ("qwen2.5", QWEN25),
            ("qwen2.5, line feeds unescaped", QWEN25.replace("\\n", "\n")),
            ("qwen3", QWEN3),
            ("no default message", TURNS),
            ("outside of strings", FIRST.replace("{{ TEXT }}", "<|im_start|>system\nOne.\nTwo 'quoted' \"words\".<|im_end|>\n") + TURNS),
            ("apostrophe", written('"<|im_start|>system\\nYou\'re brief.<|im_end|>\\n"')),
            ("quotes escaped", written("'<|im_start|>system\\nYou\\'re \\\"brief\\\":\\t{a} \\\\n\\n<|im_end|>\\n'")),
            ("two lines", written("'<|im_start|>system\\nOne\\ntwo\nthree.<|im_end|>\\n'")),
            ("empty", written("'<|im_start|>system\\n<|im_end|>\\n'"))]


MESSAGES = [[("user", "Hello")],
            [("user", "")],
            [("system", "Be brief."), ("user", "Hello\nthere \u20ac")],
            [("user", "1 + 1?"), ("assistant", "2"), ("user", "Sure?")],
            [("system", "x"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]]


def cases(named):
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    for i, (_, text) in enumerate(named):
        template = environment.from_string(text)
        for messages in MESSAGES:
            dicts = [{"role": r, "content": c} for r, c in messages]
            for generation in (False, True):
                yield {"template": i, "messages": dicts, "generation": generation,
                       "text": template.render(messages=dicts, add_generation_prompt=generation)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("-o", "--output", required=True)
    o = p.parse_args()
    named = templates(o.model)
    with open(o.output, "w") as f:
        f.write(json.dumps({"versions": {"jinja2": jinja2.__version__}})[:-1] + ',\n"templates": [\n')
        f.write(",\n".join(json.dumps({"name": n, "text": t}) for n, t in named) + '\n],\n"cases": [\n')
        f.write(",\n".join(json.dumps(c) for c in cases(named)) + "\n]}\n")


main()
