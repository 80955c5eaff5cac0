"""Chat templates that come from files: untrusted code, whose failures are the request's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.asking import user
from tests.support.errors import error_of
from tests.support.server import LegatoProcess

ATTACKS = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "attributes": "{{ messages|map(attribute='__class__')|list }}",
    "formats": "{{ '{0.__class__}'.format(messages) }}",
    "the template itself": "{{ self.__init__.__globals__ }}",
    "mutation": "{{ messages.clear() }}",
}
ENDLESS = {
    "a long loop": "{% for i in range(10**9) %}x{% endfor %}",
    "a large product": "{{ 'x' * 10**10 }}",
    "a deep macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
}
CASES = {**ATTACKS, **ENDLESS, "a refusal": "{{ raise_exception('Only polite people are answered.') }}"}


@pytest.fixture(scope="module")
def templated(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegatoProcess]:
    """A server whose template does what the first message says."""
    branches = "".join(f"{{% elif said == '{name}' %}}{source}" for name, source in CASES.items())
    source = f"{{% set said = messages[0].content %}}{{% if said == 'hello' %}}Hello{branches}{{% endif %}}"
    path = tmp_path_factory.mktemp("template") / "template.jinja"
    path.write_text(source, "utf-8")
    with LegatoProcess("smollm2", "--ctx", "512", "--parallel", "1", "--chat-template", str(path)) as process:
        process.wait_ready()
        yield process


@pytest.fixture(autouse=True)
def _unharmed(templated: LegatoProcess) -> Iterator[None]:
    yield
    assert templated.still_answers()
    assert "Traceback" not in templated.output()


def chat(server: LegatoProcess, content: str) -> tuple[int, dict]:
    reply = server.post("/v1/chat/completions", {"messages": user(content), "max_tokens": 1})
    return reply.status_code, reply.json() if reply.status_code == 200 else error_of(reply)


def test_a_template_from_a_file_is_used(templated: LegatoProcess) -> None:
    assert chat(templated, "hello")[1]["usage"]["prompt_tokens"] == 1


def test_a_template_that_raises_is_a_400_with_its_words(templated: LegatoProcess) -> None:
    status, error = chat(templated, "a refusal")
    assert status == 400
    assert "Only polite people are answered" in error["message"]
    assert error["param"] == "messages"


@pytest.mark.parametrize("name", [*ATTACKS, *ENDLESS])
def test_a_template_cannot_break_out_or_run_away(templated: LegatoProcess, name: str) -> None:
    status, error = chat(templated, name)
    assert status == 400
    assert "template" in error["message"]
    assert error["param"] == "messages"


def test_an_empty_rendering_is_refused(templated: LegatoProcess) -> None:
    status, error = chat(templated, "none of the cases")
    assert status == 400
    assert error["param"] == "messages"
