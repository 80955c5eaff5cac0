"""No way from a template to Python, to files or to other templates."""

from __future__ import annotations

import pytest

from legato.chat.message_error import TemplateError
from legato.chat.template import ChatTemplate

MESSAGES = [{"role": "user", "content": "hi"}]

ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ ''['__class__'] }}",
    "{{ messages['__class__'] }}",
    "{{ messages[0]['__class__'] }}",
    "{{ messages[0].__class__ }}",
    "{{ (1).__class__ }}{{ none.__class__ }}",
    "{{ none['__class__'] }}",
    "{{ foo.__class__ }}",
    "{{ ''|attr('__class__') }}",
    "{{ ''|attr('__cla' ~ 'ss__') }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ [''] | map('attr', '__class__') | list }}",
    "{{ [''] | selectattr('__class__') | list }}",
    "{{ [''] | selectattr('__class__.__mro__', 'defined') | list }}",
    "{{ [''] | sort(attribute='__class__') }}",
    "{{ [''] | join(attribute='__class__') }}",
    "{{ [''] | sum(attribute='__class__') }}",
    "{{ [''] | unique(attribute='__class__') | list }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ joiner.__init__ }}",
    "{{ namespace.__init__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ namespace().__class__ }}",
    "{{ namespace()._Namespace__attrs }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}{{ ns.__class__ }}",
    "{{ dict.__base__ }}",
    "{{ dict().__class__ }}",
    "{{ range.__class__ }}",
    "{{ range(1).__class__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.run.__globals__ }}",
    "{{ raise_exception.__call__.__globals__ }}",
    "{{ strftime_now.__self__ }}",
    "{{ strftime_now('%Y').__class__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ self.__init__ }}",
    "{{ loop.__class__ }}",
    "{% for x in [1] %}{{ loop._iterator }}{% endfor %}",
    "{% for x in [1] %}{{ loop.__class__ }}{% endfor %}",
    "{% for x in [1] %}{{ loop.cycle.__func__ }}{% endfor %}",
    "{% macro m() %}{% endmacro %}{{ m._func }}",
    "{% macro m() %}{% endmacro %}{{ m.__call__.__globals__ }}",
    "{% macro m() %}{{ caller.__class__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "{{ (messages | map('upper')).gi_frame }}",
    "{{ (messages | map('upper'))['gi_code'] }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{0[__class__]}'.format('') }}",
    "{{ '{x.__class__.__mro__}'.format(x='') }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ '{:{0.__class__}}'.format('') }}",
    "{{ ['{0.__class__}'] | map('format', 1) | list | first ~ ''.__class__ }}",
    "{{ ''.upper.__self__ }}",
    "{{ messages.append(1) }}",
    "{{ messages.clear() }}",
    "{{ messages.sort() }}",
    "{{ messages.__len__() }}",
    "{{ messages[0].update(role='x') }}",
    "{{ messages[0].pop('role') }}",
    "{{ messages[0].setdefault('x', 1) }}",
    "{{ messages[0]() }}",
    "{{ ''('') }}",
    "{{ caller() }}",
    "{{ environment.x }}",
    "{{ context.x }}",
    "{{ op_turn() }}",
    "{{ _loop_vars.x }}",
    "{{ raise_exception('x', _loop_vars={'a': 1}) }}",
    "{{ raise_exception('x', context=1) }}",
    "{{ ''.strip(chars='x', side='join') }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{% block a %}{{ super() }}{% endblock %}",
    "{% do messages.append(1) %}",
    "{% debug %}",
    "{% trans %}x{% endtrans %}",
    "{{ _('x') }}{{ gettext('x') }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_escapes_are_refused(source):
    with pytest.raises(TemplateError):
        ChatTemplate(source, bos_token="", eos_token="").render(MESSAGES)


@pytest.mark.parametrize(
    "source",
    ["{{ 'x' * 10**10 }}", "{{ 10**10 * 'x' }}", "{{ [0] * 10**10 }}", "{{ 9**9999999 }}", "{{ range(10**9) | list }}"],
)
def test_a_single_huge_value_is_refused(source):
    with pytest.raises(TemplateError, match=r"too large|too big"):
        ChatTemplate(source, bos_token="", eos_token="").render(MESSAGES)


def test_a_template_that_writes_without_end_is_stopped():
    source = "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}"
    with pytest.raises(TemplateError, match="without end"):
        ChatTemplate(source, bos_token="", eos_token="").render(MESSAGES)


def test_ordinary_products_are_computed():
    source = "{{ 'ab' * 3 }} {{ 6 * 7 }} {{ 2 ** 10 }} {{ 1.5 * 2 }}"
    assert ChatTemplate(source, bos_token="", eos_token="").render(MESSAGES) == "ababab 42 1024 3.0"
