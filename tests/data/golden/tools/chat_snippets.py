"""Small templates, one for each rule of Jinja2 that real chat templates lean on."""
from pathlib import Path

CONTEXT = {"messages": [{"role": "user", "content": " Hi \u00e9 "}, {"role": "assistant", "content": "a,b,,c"}],
           "bos_token": "<s>", "eos_token": "</s>"}

SPACED = ["  {% if true %}  \n  x\n  {% endif %}\n y", "a\n  {%- if true -%}\n  b  \n  {%- endif -%}\n c", "a  {# c #}  b\n  {# c #}\nd {#- x -#} e",
          "{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\nend\n", "{{ 1 }}\n\n{{ 2 }}\n\n", "  {{- 'x' -}}  \n y", "  {%+ if true %}x{% endif +%}\n y",
          "\t{% if true %}\t\n\tx{% endif %}", "{% if true %}\r\nx\r\n{% endif %}\r\ny\r", "x {% if true %} y {% endif %} z", "{% set a = 1 %}{# c #}  {% if a %}q{% endif %}",
          "{% if true %}\n    {% if true %}\n    {{ 'deep' }}\n    {% endif %}\n{% endif %}\n", "{#- first -#}\n{% set x = 'a' -%}\n   {{ x }}", "}} %} #} { } {", "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}.a.b }}",
          "a\u00a0\u2003{%- if true %}b{% endif -%}\u2028\u3000c", "", "\n", "\n\n", "plain", "{{ 1 }}{% if 1 %}\n\n{% endif %}x", "  {#- c -#}  x", "x\n    {#+ keep #}\ny", "{%- set a = 1 %}\n\n{%- set b = 2 %}\nz"]


def snippets():
    stored = Path(__file__).with_name("templates").joinpath("snippets.txt").read_text(encoding="utf-8")
    return [s for s in stored.split("\n") if s] + SPACED
