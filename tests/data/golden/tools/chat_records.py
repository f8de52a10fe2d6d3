"""Conversations whose messages have more members than role and content, and templates that show them."""
CALL = {"type": "function", "id": "call_1", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "scale": 1.0, "exact": True, "unit": None}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a \"city\"", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 0}}, "required": ["city"]}}}]

# (messages, tools)
RECORDS = [
    ([{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
      {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "{\"rain\": 0.5}"}, {"role": "user", "content": "Thanks"}], None),
    ([{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}, {"role": "tool", "content": "dry"}], TOOLS),
    ([{"role": "user", "content": "2 * 3?"}, {"role": "assistant", "reasoning_content": "two threes", "content": "6"}, {"role": "user", "content": "Sure?"}], None),
    ([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": ""}], None),
    ([{"role": "user", "name": "Ada", "content": "hi", "weight": 0.25}, {"role": "assistant", "name": "Bob", "content": "hello"}], None),
    ([{"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
      {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two €\n"}]}], None),
    ([{"role": "user", "content": []}, {"role": "assistant", "tool_calls": []}], []),
    ([{"role": "user", "content": "numbers", "n": [0, -0, -1, 9007199254740993, 1e3, 1.5e-7, -0.0, 12345678901234.5], "t": "\t\"\\\u2028é"}], None),
]

SHOWS = [
    # every member, as JSON and one by one
    "{% for m in messages %}{{ m | tojson }}\n{% endfor %}{{ tools | tojson }}",
    "{% for m in messages %}[{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}]"
    "{% if m.content is string %}{{ m.content }}{% elif m.content is none %}-{% elif m.content is defined %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% else %}?{% endif %}"
    "{% if m.reasoning_content is defined and m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson }}"
    "{% if not loop.last %}, {% endif %}{% endfor %}){% endfor %}{% if m.tool_call_id %}#{{ m.tool_call_id }}{% endif %}\n{% endfor %}"
    "{% if tools %}{% for t in tools %}{{ t.function.name }}: {{ t.function.parameters | tojson(indent=2) }}{% endfor %}{% endif %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}",
    # a template that adds texts refuses parts and null
    "{% for m in messages %}{{ '[' + m['role'] + ']' + m['content'] }}{% endfor %}",
]
