"""Small templates, one for each rule of Jinja2 that real chat templates lean on."""
CONTEXT = {"messages": [{"role": "user", "content": " Hi \u00e9 "}, {"role": "assistant", "content": "a,b,,c"}],
           "bos_token": "<s>", "eos_token": "</s>"}

SNIPPETS = r"""
{{ 1 + 2 * 3 ~ 'x' }}
{{ '1' ~ 2 + 3 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 8 / 2 }} {{ 2.5 + 1 }} {{ 0.1 }} {{ 10.0 }}
{{ not 1 == 2 }} {{ not none }} {{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }}
{{ 1 or 2 }} {{ 0 or '' }} {{ 1 and 2 }} {{ '' and 2 }}|
{{ 'a' in 'cat' }} {{ 'x' not in 'cat' }} {{ 2 in [1, 2] }} {{ 'role' in messages[0] }} {{ 'x' in nothing }}
{{ 'yes' if messages else 'no' }} {{ 'yes' if nothing }}| {{ 'a' if false else 'b' if false else 'c' }}
{{ nothing }}|{{ nothing is defined }} {{ messages is defined }} {{ messages[0].tool_calls is defined }}
{{ nothing.x }}
{{ nothing['x'] }}
{{ nothing + 'x' }}
{{ nothing() }}
{{ none }} {{ true }} {{ false }} {{ True }} {{ None }}
{{ none.x is defined }} {{ none['x'] is defined }} {{ messages[9] is defined }} {{ messages[-1].content }}
{{ 'x' + 1 }}
{{ none + 'x' }}
{{ messages[0]['content'] | trim }}|{{ messages[0].content.strip() }}|{{ messages[0].content.lstrip() }}|{{ messages[0].content.rstrip() }}|
{{ 'xxabcx'.strip('x') }} {{ 'xyabyx'.lstrip('yx') }} {{ '\n\na\n'.strip('\n') }}|{{ 'abc'.rstrip('') }}
{{ messages[1].content.split(',') | join('-') }} {{ 'a b  c'.split() | join('-') }} {{ 'a,b,c'.split(',', 1) | join('|') }} {{ ' a b c '.split(none, 1) | join('|') }}
{{ 'a,b,c'.rsplit(',', 1) | join('|') }} {{ ''.split(',') | length }} {{ ''.split() | length }}
{{ 'a</think>b</think>c'.split('</think>')[-1] }} {{ 'a'.split('</think>')[0] }}
{{ 'abc'[1] }} {{ 'abc'[-1] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[:-2] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[4:1:-2] }} {{ 'abcdef'[::2] }}
{{ 'h\u00e9llo\u20ac'[1:3] }} {{ 'h\u00e9llo' | length }} {{ 'h\u00e9llo'[::-1] }}
{% for x in [1, 2, 3, 4][::-1] %}{{ x }}{% endfor %} {% for x in [1, 2, 3, 4][1:] %}{{ x }}{% endfor %} {% for x in [1, 2, 3][5:] %}{{ x }}{% else %}none{% endfor %}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.startswith('') }}
{{ 'aXb'.upper() }} {{ 'aXb'.lower() }} {{ "it's a dAY".title() }} {{ 'hELLO wORLD'.capitalize() }} {{ 'x y' | upper }} {{ 'ABC' | capitalize }}
{{ 'aaa'.replace('a', 'b') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'aaa' | replace('a', '') }} {{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ '\u00e9\u00e9a'.find('a') }} {{ 'aba'.rfind('a') }} {{ 'aaaa'.count('aa') }}
{{ ', '.join(['a', 'b']) }} {{ [1, 2] | join }} {{ 'abc' | join('-') }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'a\nb\n'.splitlines() | join('|') }}
{{ [1, 2, 3] | first }} {{ [1, 2, 3] | last }} {{ [] | first }}| {{ 'abc' | first }} {{ [3, 1] | length }} {{ messages | count }}
{{ '' | default('d') }}| {{ nothing | default('d') }} {{ '' | default('d', true) }} {{ nothing | default }}|
{{ '5' | int + 1 }} {{ 3.7 | int }} {{ -3 | abs }} {{ 5 | string + 'x' }}
{{ messages[0] | tojson }} {{ [1, 2.5, true, none, 'a"b\\c\n</x>\u00e9'] | tojson }} {{ {} | tojson }} {{ [] | tojson }}
{{ {'a': [1, {'b': 2}], 'c': {}} | tojson(indent=2) }}
{{ {'\u00e9': '\u4e2d'} | tojson(ensure_ascii=False, indent=1) }}
{% for k, v in {'b': 1, 'C': 2, 'a': 3, 'B': 4, '': 5} | dictsort %}{{ k }}{{ v }}{% endfor %}
{{ [0, 1, 2] | select | list | length }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'eq', 'user') | map(attribute='content') | join }} {{ ['a', 'b'] | map('upper') | join }} {{ ['a', 'b'] | reject('in', ['a']) | join }}
{{ [1, 2, 3] | reverse | join }} {{ 'abc' | reverse }} {{ 'a\nb\n\nc' | indent(2) }} {{ ' x ' | safe }}|
{{ 1 is number }} {{ 'x' is string }} {{ messages is iterable }} {{ messages[0] is mapping }} {{ messages is sequence }} {{ true is boolean }} {{ true is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.5 is float }} {{ none is none }} {{ nothing is none }}
{{ 3 is odd }} {{ 4 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ 1 is eq 1 }} {{ 1 is ne 1 }} {{ 2 is gt 1 }} {{ 'a' is in ['a'] }} {{ true is true }} {{ 1 is true }} {{ 'x' is not string }} {{ namespace is callable }} {{ messages is mapping }}
{{ messages is string and true }} {{ messages is defined or false }} {{ nothing is undefined and not messages is none }}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(a=1, b='x') %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}
{% if true %}{% set y = 3 %}{% endif %}{{ y }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = (3, 4) %}{{ t[1] }}{% for k, v in {'p': 1, 'q': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in {'p': 1} | items %}{{ k }}{% endfor %}
{% for k in {'p': 1, 'q': 2} %}{{ k }}{% endfor %} {{ {'p': 1}.get('p') }} {{ {'p': 1}.get('z') }} {{ {'p': 1}.get('z', 7) }} {{ {'p': 1}.keys() | list | length }} {% for v in {'p': 8}.values() %}{{ v }}{% endfor %} {{ {'p': 1}.p }} {{ dict(a=1).a }}
{% set x %}block {{ 1 }}{% endset %}{{ x }}|{% set x | upper %}shout{% endset %}{{ x }}
{% for i in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}
{% for i in 'abc' %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}{% for i in [1] %}{{ loop.previtem is defined }}{{ loop.depth }}{% for k in [1] %}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}
{% for i in range(10) if i % 2 %}{{ i }}{{ loop.index }} {% endfor %}{% for i in range(2, 8, 3) %}{{ i }}{% endfor %}{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}
{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}{{ loop is defined }}
{% for i in [1, 2] %}{% for k in [1, 2] %}{% if k == 2 %}{% break %}{% endif %}{{ i }}{{ k }}{% endfor %}{% endfor %}
{% for i in [] %}x{% else %}empty{% endfor %}{% for i in nothing %}x{% else %}undefined{% endfor %}
{% for i in none %}x{% endfor %}
{% for i in 5 %}x{% endfor %}
{% macro f(a, b='d', c=none) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(c=3, a=4) }}{{ f() }}{{ f('x') | upper }}
{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}
{% set g = 'top' %}{% macro f() %}{{ g }}{% set g = 'in' %}{{ g }}{% endmacro %}{{ f() }}{{ g }}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% generation %}said{% set z = 1 %}{% endgeneration %}{{ z is defined }}
{% filter upper %}a{{ 'b' }}{% endfilter %}
{{ raise_exception('no') }}
{{ 'a' 'b' "c" }} {{ "\"x\"" }} {{ 'it\'s' }} {{ 'tab\tend' }} {{ 'q\q' }} {{ '\x41\u00e9\U0001f600' }}
{{ (1, 2) | length }} {{ () | length }} {{ [1, 2, ] | length }} {{ {'a': 1, } | length }} {{ [[1, 2], [3]][0][1] }} {{ (1) }} {{ [1] + [2] | join }} {{ ([1] + [2]) | join }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ none == none }} {{ 'a' == 1 }} {{ [1] == [1] }} {{ nothing == other }} {{ 'a' != 'b' }} {{ none != '' }}
{{ 'ab' * 3 }}|{{ -'x' | length }}
{{ -2 ** 2 }}
{{ - 3 }} {{ +3 }} {{ 2 - -1 }} {{ not (1 and 0) }}
{{ messages | length > 1 and messages[0]['role'] == 'user' }} {{ (messages | length) % 2 == 0 }} {{ messages[1:] | length }}
{{ 'abc' is iterable and 'abc' is not mapping }} {{ loop }}|
{{ {'a': {'b': 'c'}}.a.b }} {{ {'a': {'b': 'c'}}['a']['b'] }} {{ {'get': 1}['get'] }}
{{ namespace(x=1).x }} {{ [1, 2].0 }} {{ 'x'.nothing is defined }} {{ 'x'['y'] is defined }} {{ [1]['a'] is defined }}
{{ 'a' if }}
{{ 1 + }}
{% if %}x{% endif %}
{% if true %}x
{% endif %}
{{ messages[0].content
{% unknown %}
{{ 'x' | unknown }}
{{ 'x' is unknown }}
{{ undefined_function(1) }}
{{ messages.append(1) }}
"""

SPACED = ["  {% if true %}  \n  x\n  {% endif %}\n y", "a\n  {%- if true -%}\n  b  \n  {%- endif -%}\n c", "a  {# c #}  b\n  {# c #}\nd {#- x -#} e",
          "{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\nend\n", "{{ 1 }}\n\n{{ 2 }}\n\n", "  {{- 'x' -}}  \n y", "  {%+ if true %}x{% endif +%}\n y",
          "\t{% if true %}\t\n\tx{% endif %}", "{% if true %}\r\nx\r\n{% endif %}\r\ny\r", "x {% if true %} y {% endif %} z", "{% set a = 1 %}{# c #}  {% if a %}q{% endif %}",
          "{% if true %}\n    {% if true %}\n    {{ 'deep' }}\n    {% endif %}\n{% endif %}\n", "{#- first -#}\n{% set x = 'a' -%}\n   {{ x }}", "}} %} #} { } {", "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}.a.b }}",
          "a\u00a0\u2003{%- if true %}b{% endif -%}\u2028\u3000c", "", "\n", "\n\n", "plain", "{{ 1 }}{% if 1 %}\n\n{% endif %}x", "  {#- c -#}  x", "x\n    {#+ keep #}\ny", "{%- set a = 1 %}\n\n{%- set b = 2 %}\nz"]


def snippets():
    return [s for s in SNIPPETS.split("\n") if s] + SPACED
