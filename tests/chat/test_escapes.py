"""No way from a template to Python, to files or to other templates."""

from __future__ import annotations

import pytest

from legato.chat.errors import TemplateError
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
    "{{ self }}",
    "{{ loop.__class__ }}",
    "{% for x in [1] %}{{ loop._iterator }}{% endfor %}",
    "{% for x in [1] %}{{ loop.__class__ }}{% endfor %}",
    "{% for x in [1] %}{{ loop }}{% endfor %}",
    "{% for x in [1] %}{{ loop.cycle.__func__ }}{% endfor %}",
    "{% macro m() %}{% endmacro %}{{ m._func }}",
    "{% macro m() %}{% endmacro %}{{ m.__call__.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m }}",
    "{% macro m() %}{{ caller.__class__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "{{ (messages | map('upper')).gi_frame }}",
    "{{ (messages | map('upper'))['gi_code'] }}",
    "{{ messages | map('upper') }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{0[__class__]}'.format('') }}",
    "{{ '{x.__class__.__mro__}'.format(x='') }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ '{0.format.__self__}'.format('') }}",
    "{{ '{0.format}'.format('') }}",
    "{{ '{:{0.__class__}}'.format('') }}",
    "{{ ['{0.__class__}'] | map('format', 1) | list | first ~ ''.__class__ }}",
    "{{ ''.format.__self__ }}",
    "{{ ''.upper.__self__ }}",
    "{{ ''.upper }}",
    "{{ ''.encode() }}",
    "{{ ''.translate({}) }}",
    "{{ ''.maketrans('a', 'b') }}",
    "{{ (1).to_bytes(1, 'big') }}",
    "{{ (1).real }}",
    "{{ (1.5).fromhex('1') }}",
    "{{ messages.append(1) }}",
    "{{ messages.clear() }}",
    "{{ messages.sort() }}",
    "{{ messages.__len__() }}",
    "{{ messages[0].update(role='x') }}",
    "{{ messages[0].pop('role') }}",
    "{{ messages[0].setdefault('x', 1) }}",
    "{{ messages[0].items().mapping }}",
    "{{ messages[0].keys() - [] }}",
    "{{ messages[0].fromkeys([1]) }}",
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
    "{% autoescape true %}{% endautoescape %}",
    "{% do messages.append(1) %}",
    "{% debug %}",
    "{% trans %}x{% endtrans %}",
    "{{ _('x') }}{{ gettext('x') }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_escapes_are_refused(source):
    with pytest.raises(TemplateError):
        ChatTemplate(source, bos_token="", eos_token="").render(MESSAGES)


def test_keys_that_look_like_internals_are_only_keys():
    template = ChatTemplate("{{ m['__class__'] }}{{ m.__init__ }}{{ m.pop }}", bos_token="", eos_token="")
    extra = {"m": {"__class__": "a", "__init__": "b", "pop": "c"}}
    assert template.render(MESSAGES, extra=extra) == "abc"
