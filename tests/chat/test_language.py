"""What templates may write gives what Hugging Face's sandbox gives."""

from __future__ import annotations

from datetime import datetime

import pytest

from legato.chat.errors import TemplateError
from legato.chat.template import ChatTemplate
from tests.chat import reference

NOW = datetime(2025, 3, 1, 12, 30)
MESSAGES = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Grüße & <b>'x'</b>\nzwei\n"},
    {"role": "assistant", "content": "", "name": "bot"},
]
EXTRA = {
    "tools": [{"name": "b", "n": 2, "on": True}, {"name": "a", "n": 10, "on": False}],
    "tree": [{"name": "r", "sub": [{"name": "s", "sub": []}, {"name": "t", "sub": []}]}],
    "numbers": [3, 1, 2, 1],
    "half": 0.5,
    "words": "one two  three",
}

SAME = [
    # text
    "{{ messages[0]['content'] | trim }}{{ messages[0].content.strip() }}{{ words.lstrip('on') }}",
    "{{ words.rstrip('e') }}",
    "{{ words.split() }}{{ words.split(' ') }}{{ words.split(' ', 1)[-1] }}{{ words.rsplit(' ', 1)[0] }}",
    "{{ words.split(maxsplit=1) }}{{ messages[1].content.splitlines() }}",
    "{{ messages[1].content.splitlines(keepends=true) }}",
    "{{ words[0] }}{{ words[-1] }}{{ words[2:5] }}{{ words[::-1] }}{{ words[:-2] }}{{ words[none:2] }}",
    "{{ words.startswith('one') }}{{ words.endswith(('x', 'three')) }}{{ words.find('two') }}{{ words.rfind('t') }}",
    "{{ words.upper() }}{{ words | upper }}{{ words.title() }}{{ words | title }}{{ words | capitalize }}",
    "{{ 'ABC' | lower }}",
    "{{ words.replace('two', '2') }}{{ words | replace('o', '0', 1) }}{{ words.count('e') }}{{ words.partition(' ') }}",
    "{{ ', '.join(['a', 'b']) }}{{ numbers | join('-') }}{{ tools | join(', ', attribute='name') }}",
    "{{ [] | join('x') }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'x'] ~ {'k': (1,)} ~ missing }}|{{ 'a' + 'b' * 3 + 2 * 'c' }}",
    "{{ '%s is %d, %05.1f %% %-5s| %(x)s' | replace('%(x)s', '') }}{{ '%s-%03d' % ('a', 7) }}{{ '%(a)s' % {'a': 1} }}",
    "{{ '%s|%5s|%r' | format('a', 'b', 'c') }}{{ '{} {0}' | length }}{{ '{} {:>4} {!r}'.format('a', 'b', 'c') }}",
    "{{ '{x.name} {x[n]:03d} {y:.2f}'.format(x=tools[0], y=half) }}{{ 'ab'.center(6) }}{{ 'ab' | center(6) }}|",
    "{{ '7'.zfill(3) }}",
    "{{ 'ab'.ljust(4) }}|{{ 'ab'.rjust(4, '.') }}|{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|",
    "{{ 'a\nb' | indent('> ') }}",
    "{{ 'x'.isdigit() }}{{ '7'.isdigit() }}{{ 'prefix-x'.removeprefix('prefix-') }}{{ words | length }}",
    "{{ words | count }}",
    "{{ messages[1].content | e }}{{ messages[1].content | escape }}{{ '<' | safe }}{{ 7 | string }}",
    "{{ words | reverse }}",
    "{{ words | first }}{{ words | last }}{{ words | list }}{{ '  x ' | trim }}{{ 'xxaxx' | trim('x') }}",
    # numbers
    "{{ 7 // 2 }} {{ 7 / 2 }} {{ 7 % 3 }} {{ 2 ** 10 }} {{ -3 }} {{ +3 }} {{ 2 ** -1 }} {{ half * 3 }} {{ 7 - 10 }}",
    "{{ '7' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '1f' | int(base=16) }} {{ '1.5' | float }} {{ -3 | abs }}",
    "{{ 2.567 | round(1) }} {{ 2.567 | round(1, 'floor') }} {{ 2.1 | round(method='ceil') | int }} {{ 1e3 }} ",
    "{{ true + 1 }}",
    # lists and dicts
    "{{ [1, 2] + [3] }}{{ (1, 2) + (3,) }}{{ [0] * 3 }}{{ numbers[1:] }}{{ numbers[::-1] }}",
    "{{ numbers.index(2) }}{{ numbers.count(1) }}",
    "{{ numbers | sort }}{{ numbers | sort(reverse=true) }}{{ numbers | unique | list }}{{ numbers | sum }}",
    "{{ numbers | max }}{{ numbers | min }}",
    "{{ tools | sort(attribute='n') | map(attribute='name') | list }}{{ tools | sum(attribute='n') }}",
    "{{ tools | max(attribute='n') }}",
    "{{ tools | selectattr('on') | list }}{{ tools | rejectattr('n', 'gt', 5) | list }}",
    "{{ tools | map('tojson') | join }}",
    "{{ numbers | select('odd') | list }}{{ numbers | reject('equalto', 1) | list }}",
    "{{ numbers | map('string') | join }}",
    "{{ messages | selectattr('role', 'in', ['user', 'system']) | map(attribute='content') | list | length }}",
    "{{ none | map | list }}",
    "{{ tools | map(attribute='missing', default='?') | list }}{{ numbers | first }}{{ numbers | last }}",
    "{{ [] | first }}{{ [] | last }}",
    "{{ tools[0].items() | list }}{{ tools[0] | items | list }}{{ tools[0] | dictsort }}",
    "{{ tools[0].keys() | list }}{{ tools[0] | list }}",
    "{{ tools[0].get('name') }}{{ tools[0].get('x', 'none') }}{{ tools[0]['name'] }}{{ tools[0].x }}",
    "{{ tools[0]['x'] }}{{ numbers[9] }}",
    "{{ {'a': 1, 2: 'b', words: none} }}{{ dict(a=1, b=2) }}{{ dict([('a', 1)]) }}{{ dict({'x': 1}, y=2) }}",
    "{{ {}.items() | list }}",
    "{{ 'name' in tools[0] }}{{ 'x' not in tools[0] }}{{ 1 in numbers }}{{ 'two' in words }}{{ 1 < 2 < 3 }}",
    "{{ 1 < 2 > 5 }}",
    "{{ [1, [2]] == [1, [2]] }}{{ {'a': 1} != {'a': 1} }}{{ (1, 'a') < (1, 'b') }}{{ tools[0] == tools[1] }}",
    "{{ messages == [] }}",
    "{{ range(3) | list }}{{ range(1, 7, 2) | list }}{{ range(5) | length }}{{ range(9)[2] }}",
    "{{ 3 in range(5) }}{{ numbers | reverse | list }}",
    "{{ tools | tojson }}{{ tools | tojson(indent=2) }}{{ 'ü<>&' | tojson }}",
    "{{ 'ü' | tojson(ensure_ascii=true) }}{{ none | tojson }}",
    "{{ tools[0] | tojson(separators=(',', ':')) }}{{ tools[0] | tojson(sort_keys=true) }}",
    "{{ {'b': [], 'a': {}} | tojson(false, 1, none, true) }}",
    # tests
    "{{ words is string }}{{ tools is mapping }}{{ tools[0] is mapping }}{{ tools is iterable }}",
    "{{ tools is sequence }}{{ 1 is iterable }}",
    "{{ 1 is number }}{{ 1 is integer }}{{ half is float }}{{ true is boolean }}{{ true is true }}",
    "{{ false is false }}{{ none is none }}",
    "{{ x is defined }}{{ words is defined }}{{ x is undefined }}{{ 3 is odd }}{{ 3 is even }}",
    "{{ 6 is divisibleby 3 }}{{ words is callable }}",
    "{{ 1 is eq 1 }}{{ 1 is equalto(1) }}{{ 1 is ne 2 }}{{ 2 is gt 1 }}{{ 2 is ge 2 }}{{ 2 is lt 1 }}",
    "{{ 2 is le 2 }}{{ 1 is in [1] }}",
    "{{ 'a' is lower }}{{ 'a' is upper }}{{ none is not none }}{{ words is sameas words }}{{ words is in tools }}",
    # statements
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{% endfor %}",
    "{% for m in messages %}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for m in messages %}{{ loop.nextitem.role if loop.nextitem is defined }}<{{ loop.previtem }}{% endfor %}",
    "{% for m in numbers %}{{ loop.changed(m) }}{% endfor %}",
    "{% for n in numbers if n > 1 %}{{ n }}{{ loop.last }}{% else %}no{% endfor %}",
    "{% for n in [] %}x{% else %}none{% endfor %}",
    "{% for k, v in tools[0].items() %}{{ k }}={{ v }};{% endfor %}{% for c in 'abc' %}{{ c }}.{% endfor %}",
    "{% for n in numbers %}{% if n == 3 %}{% continue %}{% endif %}{{ n }}{% endfor %}",
    "{% for n in numbers %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}",
    "{% for t in tree recursive %}{{ t.name }}{% if t.sub %}({{ loop(t.sub) }}){% endif %}{{ loop.depth }}{% endfor %}",
    "{% set ns = namespace(a=1, b='x') %}{% for n in numbers %}{% set ns.a = ns.a + n %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(b='x') %}{{ ns.b }}{{ ns['b'] }}{{ ns.c }}",
    "{% set ns = namespace({'k': 1}) %}{{ ns.k }}{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set x %}block {{ words }}{% endset %}{{ x }}{{ x | length }}",
    "{% macro m(a, b='d') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}",
    "{% macro m(a, b='d') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(*[1, 2]) }}{{ m(**{'a': 5}) }}",
    "{% macro box() %}[{{ caller('in') }}]{% endmacro %}{% call(x) box() %}{{ x }}{{ words }}{% endcall %}",
    "{% filter upper %}{{ words }} x{% endfilter %}{% with a = 1, b = words %}{{ a }}{{ b }}{% endwith %}",
    "{% raw %}{{ x }}{% endraw %}",
    "{{ 'a' if tools else 'b' }}{{ 'a' if false }}{{ x or 'y' }}{{ x and 'y' }}{{ not x }}",
    "{{ x | default('d') }}{{ none | d('e', true) }}",
    "  {% if true %}\n  a\n    {% endif %}\n{#- note -#}\n b {%- if true -%} c {% endif +%}\n\n",
    "{{ strftime_now('%d %B %Y') }}{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ documents is none }}",
    "{{ add_generation_prompt }}",
    "{% for n in numbers %}{% set x = n %}{% endfor %}{{ x is defined }}{% if true %}{% set y = 1 %}{% endif %}{{ y }}",
]


@pytest.mark.parametrize("source", SAME)
def test_same_as_hugging_faces_sandbox(source):
    expected = reference.render(source, MESSAGES, NOW, add_generation_prompt=True, **EXTRA)
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    assert template.render(MESSAGES, now=NOW, extra=EXTRA) == expected


def test_the_messages_are_not_changed():
    before = [dict(message) for message in MESSAGES]
    ChatTemplate("{% for m in messages %}{{ m }}{% endfor %}", bos_token="", eos_token="").render(MESSAGES)
    assert before == MESSAGES


def test_without_a_time_it_is_now():
    text = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}", bos_token="", eos_token="").render(MESSAGES)
    assert abs(datetime.now() - datetime.fromisoformat(text)).days <= 1


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("a\n\n{% if %}", "line 3: "),
        ("{{ x | nonsense }}", "line 1: No filter named 'nonsense'"),
        ("{% endfor %}", "line 1: "),
        ("{{ " + "(" * 5000, "nested too deeply"),
        ("{{ " + "9" * 5000 + " }}", "4300 digits"),
        ("{% for x in y %}" * 30 + "{% endfor %}" * 30, "nested"),
        ("{% if x %}" * 300 + "{% endif %}" * 300, "nested|indentation"),
    ],
)
def test_what_does_not_compile_says_where(source, reason):
    with pytest.raises(TemplateError, match=f"^this model's chat template does not compile: .*({reason})"):
        ChatTemplate(source, bos_token="", eos_token="")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("\n{{ x.y }}", "fails at line 2: 'x' is undefined"),
        ("{{ 1 / 0 }}", "fails at line 1: division by zero"),
        ("{{ 'a' + 1 }}", "fails at line 1: can only concatenate str"),
        ("{% macro m() %}\n\n{{ none.x.y }}{% endmacro %}\n{{ m() }}", "fails at line 3: "),
        ("{% if true %}{{ 'x' | nonsense }}{% endif %}", "fails at line 1: No filter named 'nonsense'"),
        ("{{ x | tojson }}", "Undefined is not JSON serializable"),
        ("{{ raise_exception('No\n tools') }}", "refuses these messages: No tools"),
        ("{{ raise_exception() }}", "refuses these messages: it does not say why"),
        ("{{ '\\ud800' }}", "half of a surrogate pair"),
    ],
)
def test_what_fails_says_why(source, words):
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source, bos_token="", eos_token="").render(MESSAGES)
    assert words in str(caught.value)


def test_long_reasons_are_shortened():
    with pytest.raises(TemplateError) as caught:
        ChatTemplate("{{ raise_exception('no ' * 100000) }}", bos_token="", eos_token="").render(MESSAGES)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "name", ["messages", "bos_token", "eos_token", "add_generation_prompt", "raise_exception", "range"]
)
def test_the_servers_own_variables_cannot_be_set(name):
    with pytest.raises(TemplateError, match=name):
        ChatTemplate("x", bos_token="", eos_token="").render(MESSAGES, extra={name: 1})


def test_only_plain_data_is_let_in():
    with pytest.raises(TemplateError, match="of type object"):
        ChatTemplate("x", bos_token="", eos_token="").render(MESSAGES, extra={"x": [object()]})
