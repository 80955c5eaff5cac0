"""Templates that want all the memory or all the time get little of either."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from legato.chat.errors import TemplateError
from legato.chat.template import ChatTemplate, Limits

MESSAGES = [{"role": "user", "content": "hi"}]
SMALL = Limits(seconds=0.5, output=2**18, memory=2**24)
MIB = 2**20

# What grows by doubling, sixty times.
GROW = "{%% set ns = namespace(s=%s) %%}{%% for i in range(60) %%}{%% set ns.s = %s %%}{%% endfor %%}"
# A small object with 2^60 leaves, and a second one that equals it.
DAG = (
    "{% set ns = namespace(a=[1], b=[1], t=(1,)) %}{% for i in range(60) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}"
)
DEEP = (
    "{% set ns = namespace(a=[1], t=(1,)) %}{% for i in range(5000) %}"
    "{% set ns.a = [ns.a] %}{% set ns.t = (ns.t,) %}{% endfor %}"
)
FOREVER = "{% for a in range(99999) %}{% for b in range(99999) %}"
BIG = "{% set s = 'ab' * 130000 %}"

AT_ONCE = [
    "{{ 10**10**10 }}",
    "{{ 9**9**9 }}",
    "{{ 2**64 }}",
    "{{ (-9)**99999999 }}",
    "{{ 'x' * 10**10 }}",
    "{{ 10**10 * 'x' }}",
    "{{ [0] * 10**10 }}",
    "{{ 10**10 * (0,) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (10**9, 1) }}",
    "{{ '%(a(b))9999999999d' % {'a(b)': 1} }}",
    "{{ '%(a)9999999999d' % {'a': 1} }}",
    "{{ '%.999999999f' % 1.5 }}",
    "{{ '%-999999999s' % '' }}",
    "{{ ('%1000d' * 1000) % ((1,) * 1000) }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ '%999999999d' is even }}",
    "{{ '%999999999d' is odd }}",
    "{{ '%999999999d' is divisibleby 3 }}",
    "{{ ['%999999999d'] | select('odd') | list }}",
    "{{ 'x' | center(10**9) }}",
    "{{ 'x'.center(10**9) }}",
    "{{ 'x'.ljust(10**9) }}",
    "{{ 'x'.rjust(10**9) }}",
    "{{ 'x'.zfill(10**9) }}",
    "{{ '\\t'.expandtabs(10**9) }}",
    "{{ '{:999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 10**9) }}",
    "{{ '{0:.999999999f}'.format(1.5) }}",
    "{{ '{x:>99999999999}'.format(x=1) }}",
    "{{ ('{0:999}' * 1000).format(1) }}",
    "{{ ('{0}' * 9999).format('x' * 999) }}",
    "{{ 'x' | indent(10**9, true) }}",
    "{{ ('x\\n' * 9999) | indent(9999) }}",
    "{{ 'x' | indent('x' * 200000, true, true) ~ 'x' * 200000 }}",
    "{{ 'x' | wordwrap(1, wrapstring='x' * 100000) }}",
    "{{ [1, [2]] | tojson(indent=10**9) }}",
    "{{ [1, [2]] | tojson(indent='x' * 10000) }}",
    "{{ [1, [2]] | tojson(separators=('x' * 100000, 'y')) }}",
    "{{ range(10**9) | list }}",
    "{{ range(10**18) }}",
    "{{ 5 | round(10**10, 'ceil') }}",
    "{{ 5 | round(-(10**10)) }}",
    "{{ 'x' | round(9, 'ceil') }}",
    "{{ (5).to_bytes(10**9, 'big') }}",
    "{{ ('1' * 4000) | int }}",
    "{{ ('f' * 100000) | int(base=16) }}",
    "{{ lipsum(10**6) }}",
    "{{ strftime_now('%c' * 100000) }}",
    "{{ ('a' * 200000).replace('a', 'a' * 200000) }}",
    "{{ ('a' * 200000) | replace('', 'a' * 200000) }}",
    "{{ ('a' * 200000).join('a' * 200000) }}",
    "{{ ('a' * 200000) | join('a' * 200000) }}",
    "{{ [1, 2, 3] | sum(start='') }}",
    "{{ messages | map(attribute='a.' * 100000) | list }}",
    "{{ messages | sort(attribute='a.' * 100000) }}",
    "{{ messages | join(attribute='a.' * 100000) }}",
    BIG + "{{ s.strip(s) }}",
    BIG + "{{ s | trim(s) }}",
    BIG + "{{ s.rfind(s[1:] ~ 'x') }}",
    BIG + "{{ s.rsplit('x' ~ s) }}",
    BIG + "{{ s.rpartition('x' ~ s) }}",
    BIG + "{{ s ~ s }}",
    BIG + "{{ s + s }}",
    BIG + "{{ s }}{{ s }}",
    BIG + "{{ (s, s) | join }}",
    BIG + "{{ [s, s] }}",
    BIG + "{{ [s, s] | tojson }}",
    BIG + "{{ '%s%s' % (s, s) }}",
    BIG + "{{ '{0}{0}'.format(s) }}",
    BIG + "{% for i in range(100) %}{{ s }}{% endfor %}",
    BIG + "{% set x %}{% for i in range(999) %}{{ s }}{% endfor %}{% endset %}",
    BIG + "{% filter upper %}{% for i in range(999) %}{{ s }}{% endfor %}{% endfilter %}",
    BIG + "{% macro m() %}{{ s }}{{ s }}{% endmacro %}{% macro n() %}{{ m() }}{{ m() }}{% endmacro %}{{ n() ~ n() }}",
    BIG + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l, s[i:]] %}{% endfor %}",
    BIG + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l, s | list] %}{% endfor %}",
    BIG + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l, s.split('a')] %}{% endfor %}",
    BIG + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l, s.upper()] %}{% endfor %}",
    BIG + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l, s | upper] %}{% endfor %}",
    GROW % ("'x'", "ns.s ~ ns.s") + "{{ ns.s }}",
    GROW % ("'x'", "ns.s + ns.s") + "{{ ns.s }}",
    GROW % ("'x'", "ns.s * 2") + "{{ ns.s }}",
    GROW % ("'xy'", "ns.s.replace('x', ns.s)"),
    GROW % ("'xy'", "ns.s | replace('', ns.s)"),
    GROW % ("'xy'", "[ns.s, ns.s] | join"),
    GROW % ("'xy'", "ns.s.join([ns.s] * 9)"),
    GROW % ("'xy'", "'%s%s' % (ns.s, ns.s)"),
    GROW % ("'xy'", "'{0}{0}'.format(ns.s)"),
    GROW % ("'\"'", "ns.s | tojson | tojson"),
    GROW % ("[1]", "ns.s + ns.s"),
    GROW % ("[1]", "[ns.s, ns.s] | sum(start=[])"),
    GROW % ("1", "ns.s * 9"),
    GROW % ("1", "ns.s + ns.s + ns.s"),
    DAG + "{{ ns.a }}",
    DAG + "{{ ns.a ~ '' }}",
    DAG + "{{ ns.a | string }}",
    DAG + "{{ ns.a | tojson }}",
    DAG + "{{ [ns.a] | join }}",
    DAG + "{{ ns.a | upper }}",
    DAG + "{{ '%s' % (ns.a,) }}",
    DAG + "{{ '%s' | format(ns.a) }}",
    DAG + "{{ '{}'.format(ns.a) }}",
    DAG + "{{ '{!r}'.format(ns.a) }}",
    DAG + "{{ ns.a == ns.b }}",
    DAG + "{{ ns.a is eq ns.b }}",
    DAG + "{{ ns.a < ns.b }}",
    DAG + "{{ ns.a in [ns.b] }}",
    DAG + "{{ ns.a is in [ns.b] }}",
    DAG + "{{ [ns.a].index(ns.b) }}",
    DAG + "{{ [ns.a].count(ns.b) }}",
    DAG + "{{ [ns.a, ns.b] | sort }}",
    DAG + "{{ [ns.a, ns.b] | max }}",
    DAG + "{{ {'a': ns.a, 'b': ns.b} | dictsort(by='value') }}",
    DAG + "{{ [{'x': ns.a}, {'x': ns.b}] | sort(attribute='x') }}",
    DAG + "{{ [ns.a] | select('in', [ns.b]) | list }}",
    DAG + "{% for x in [ns.a, ns.b] %}{{ loop.changed(x) }}{% endfor %}",
    DAG + "{{ [ns.t] | unique | list }}",
    DAG + "{{ {ns.t: 1} }}",
    DAG + "{{ {}[ns.t].x }}",
    DAG + "{{ [][ns.a].x }}",
    DAG + "{{ {}[{'a': ns.a}] + 1 }}",
    DAG + "{{ ns.x[ns.a] }}",
    DAG + "{{ ns[ns.a].x }}",
    DAG + "{{ 5[ns.t].x }}",
    DAG + "{{ messages | map(attribute=ns.a) | list }}",
    DAG + "{{ messages | map(ns.a) | list }}",
    DAG + "{{ messages | selectattr(ns.t) | list }}",
    DAG + "{{ messages | select(ns.t) | list }}",
    DAG + "{{ messages | reject(ns.t) | list }}",
    DAG + "{{ messages | selectattr('role', ns.t) | list }}",
    DAG + "{{ messages | rejectattr('role', ns.t) | list }}",
    DAG + "{{ messages | map(ns.t) | list }}",
    DAG + "{{ messages | map('attr', ns.t) | list }}",
    DAG + "{{ messages | map(attribute='x', default=ns.t) | list }}",
    DAG + "{{ x | default(ns.t) }}",
    DAG + "{{ messages | sort(attribute=ns.t) }}",
    DAG + "{{ messages | join(ns.a) }}",
    DAG + "{{ messages | join(attribute=ns.t) }}",
    DAG + "{{ messages | sum(attribute=ns.t) }}",
    DAG + "{{ messages | attr(ns.t) }}",
    DAG + "{{ messages[ns.t:ns.a] }}",
    DAG + "{{ range(ns.t) }}",
    DAG + "{{ ns.t | int }}{{ ns.t | float }}{{ ns.t * ns.t }}",
    DAG + "{{ ns.t | round }}",
    DAG + "{{ 1 | round(ns.t) }}",
    DAG + "{{ 'x' | indent(ns.t) }}",
    DAG + "{{ 'x' | center(ns.t) }}",
    DAG + "{{ 'x' | replace(ns.t, ns.t) }}",
    DAG + "{{ strftime_now(ns.t) }}",
    DAG + "{{ 1 | tojson(indent=ns.t) }}",
    DAG + "{{ 1 | tojson(separators=ns.t) }}",
    DAG + "{{ namespace(ns.t) }}",
    DAG + "{{ dict(ns.t) }}",
    DAG + "{{ {'a': 1}.items().x[ns.t] }}",
    DAG + "{% for a, b in ns.t[:1] %}{% endfor %}{% set a, b, c = ns.t %}",
    DAG + "{% for x in [1] %}{{ loop(ns.t) }}{% endfor %}",
    DAG + "{% macro m() %}{{ varargs }}{% endmacro %}{{ m(ns.t) }}",
    DAG + "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(a=ns.t) }}",
    DAG + "{{ ns.t() }}",
    DAG + "{{ ns.t is divisibleby ns.t }}",
    DAG + "{{ ns.t is lower }}",
    DAG + "{{ {}.get(ns.t) }}",
    DAG + "{{ ns.t in {} }}",
    DAG + "{{ dict([(ns.t, 1)]) }}",
    DAG + "{{ raise_exception(ns.a) }}",
    DEEP + "{{ ns.a }}",
    DEEP + "{{ ns.a | tojson }}",
    DEEP + "{{ [ns.t] | unique | list }}",
    "{% set ns = namespace() %}{% set ns.s = [ns] %}{{ ns.s }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% set x = messages %}{% macro f(y) %}{{ f([y]) }}{% endmacro %}{{ f(x) }}",
]

IN_TIME = [
    FOREVER + "{% endfor %}{% endfor %}",
    FOREVER + "{% set x = a + b %}{% endfor %}{% endfor %}",
    FOREVER + "x{% endfor %}{% endfor %}",
    FOREVER + "{{ '' }}{% endfor %}{% endfor %}",
    FOREVER + "{% continue %}{% endfor %}{% endfor %}",
    "{% set x %}" + FOREVER + "xxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}{% endset %}",
    "{% macro m() %}" + FOREVER + "{% endfor %}{% endfor %}{% endmacro %}{{ m() }}",
    "{% for a in range(99999) if range(99999) | sum == 1 %}{% endfor %}",
    "{% set l = range(9999) | list %}{% for a in range(99999) if -1 in l %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) if b < 0 %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) if b is string %}{{ loop.length }}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "{% for a in range(99999) %}{% set x = range(9999) | map('string') | list %}{% endfor %}",
    "{% for a in range(99999) %}{% set x = range(9999) | select('odd') | list %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) | reject('number') %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) | map('string') | select('none') %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% set x = range(9999) | map('abs') | sort %}{% endfor %}",
    "{% for a in range(99999) %}{% set x = range(9999) | join %}{% endfor %}",
    "{% for a in range(99999) %}{% set x = ('x' * 99999) | tojson %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% else %}x{% endif %}{% endmacro %}{% set x = f(60) %}",
    "{% for a in range(20) recursive %}{% if loop.depth < 20 %}{{ loop(range(20)) }}{% endif %}{% endfor %}",
]


def start(source, limits=SMALL):
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source, bos_token="", eos_token="", limits=limits).render(MESSAGES)
    return str(caught.value)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("source", AT_ONCE)
def test_bombs_do_not_go_off(source):
    tracemalloc.start()
    try:
        start(source, Limits(seconds=20, output=SMALL.output, memory=SMALL.memory))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * MIB


@pytest.mark.timeout(10)
@pytest.mark.parametrize("source", IN_TIME)
def test_endless_templates_end(source):
    reason = start(source)
    assert "takes longer than 0.5 s" in reason or "takes too much memory" in reason


@pytest.mark.timeout(10)
def test_the_deadline_does_not_need_memory_to_run_out():
    assert "takes longer than 0.3 s" in start(FOREVER + "{% endfor %}{% endfor %}", Limits(seconds=0.3))


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "source",
    [
        "{{ a" + "<a" * 60000 + " }}",
        "{{ f(" + "a," * 60000 + "1) }}",
        "{{ a" + ".b" * 60000 + " }}",
        "{{ a" + "|e" * 60000 + " }}",
        "{{ 1" + "+1" * 60000 + " }}",
        "{{ " + "[" * 60000 + " }}",
        "{{ " + "-" * 60000 + "1 }}",
        "{{a}}" * 26000,
        "{%" + " " * 130000,
        "{% raw" + " " * 130000,
        "x" * 200_000,
    ],
)
def test_sources_that_are_costly_to_compile_are_refused(source):
    with pytest.raises(TemplateError, match=r"^this model's chat template (does not compile|has more|is longer)"):
        ChatTemplate(source, bos_token="", eos_token="")


def test_the_limits_grow_with_what_is_given():
    content = "word " * 500_000
    template = ChatTemplate(
        "{% for m in messages %}{{ m.content | trim }}{% endfor %}", bos_token="", eos_token="", limits=SMALL
    )
    assert len(template.render([{"role": "user", "content": content}] * 2)) == 2 * len(content) - 2


def test_each_rendering_has_a_budget_of_its_own():
    template = ChatTemplate("{{ 'x' * 200000 }}", bos_token="", eos_token="", limits=SMALL)
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(lambda _: template.render(MESSAGES), range(100)))
    assert {len(text) for text in texts} == {200_000}


def test_a_long_conversation_is_rendered():
    messages = [{"role": "user", "content": f"message {index}"} for index in range(10_000)]
    template = ChatTemplate("{% for m in messages %}{{ m.content ~ '\n' }}{% endfor %}", bos_token="", eos_token="")
    assert template.render(messages) == "".join(f"message {index}\n" for index in range(10_000))
