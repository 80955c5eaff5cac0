"""What people send, and what they are told when it cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.chat.message_error import MessageError
from legato.chat.messages import MOST_MESSAGES, read_messages

USER = {"role": "user", "content": "x"}


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(**more):
    return {"role": "assistant", "content": "x", **more}


def text(value):
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (USER, {"role": "user", "content": "x"}),
        ({"role": "system", "content": ""}, {"role": "system", "content": ""}),
        ({"role": "developer", "content": "x"}, {"role": "system", "content": "x"}),
        ({"role": "assistant", "content": ""}, {"role": "assistant", "content": ""}),
        (user("x", name="Ada"), {"role": "user", "content": "x", "name": "Ada"}),
        (user("x", name=None), {"role": "user", "content": "x"}),
        (user([text("a")]), {"role": "user", "content": "a"}),
        (user([text("a"), text(""), text("b\n")]), {"role": "user", "content": "a\n\nb\n"}),
        (user("a\x00b\x1b \U0001f600 <|im_end|>"), {"role": "user", "content": "a\x00b\x1b \U0001f600 <|im_end|>"}),
        (
            assistant(refusal=None, audio=None, tool_calls=None, function_call=None, annotations=None),
            {"role": "assistant", "content": "x"},
        ),
        (assistant(tool_calls=[], annotations=[]), {"role": "assistant", "content": "x"}),
    ],
)
def test_reads(sent, read):
    assert read_messages([sent]) == [read]


@pytest.mark.parametrize(
    ("sent", "param", "words"),
    [
        (None, "messages", "must be a list"),
        ({}, "messages", "must be a list"),
        ("hi", "messages", "must be a list"),
        ([], "messages", "is empty"),
        ([USER] * (MOST_MESSAGES + 1), "messages", "at most 10,000"),
        ([USER, "hi"], "messages[1]", "must be an object"),
        ([None], "messages[0]", "must be an object"),
        ([{"content": "x"}], "messages[0].role", "and is missing"),
        ([{"role": "bot", "content": "x"}], "messages[0].role", "system, developer, user, assistant, not 'bot'"),
        ([{"role": None, "content": "x"}], "messages[0].role", "not None"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role", "not a list"),
        ([{"role": "User", "content": "x"}], "messages[0].role", "not 'User'"),
        ([USER, {"role": "tool", "content": "x", "tool_call_id": "1"}], "messages[1].role", "not supported yet"),
        ([{"role": "function", "content": "x", "name": "f"}], "messages[0].role", "not supported yet"),
        ([assistant(tool_calls=[{"id": "1"}])], "messages[0].tool_calls", "tool calls are not supported yet"),
        (
            [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
            "messages[0].tool_calls",
            "tool calls are not supported yet",
        ),
        ([assistant(function_call={"name": "f"})], "messages[0].function_call", "tool calls are not supported yet"),
        ([assistant(refusal="No.")], "messages[0].refusal", "is not text"),
        ([assistant(audio={"id": "1"})], "messages[0].audio", "is not text"),
        ([user("x", tool_calls=[])], "messages[0].tool_calls", "unknown key 'tool_calls'"),
        ([user("x", mood="good")], "messages[0].mood", "unknown key 'mood'; a message has role, content, name"),
        ([user("x", **{"a b\ud800": 1})], "messages[0]", "unknown key"),
        ([{"role": "user", "content": "x", 1: 2}], "messages[0]", "unknown key 1"),
        ([{"role": "user"}], "messages[0].content", "is missing"),
        ([user(None)], "messages[0].content", "is missing"),
        ([{"role": "assistant", "content": None}], "messages[0].content", "is missing"),
        ([user(5)], "messages[0].content", "must be text, not 5"),
        ([user({"text": "x"})], "messages[0].content", "must be text, not an object"),
        ([user(True)], "messages[0].content", "must be text, not True"),
        ([user([])], "messages[0].content", "is an empty list"),
        ([user(["x"])], "messages[0].content[0]", "must be an object like"),
        ([user([text("x"), {}])], "messages[0].content[1].type", 'must be "text", not None'),
        ([user([{"type": "txt"}])], "messages[0].content[0].type", "not 'txt'"),
        ([user([{"type": []}])], "messages[0].content[0].type", "not a list"),
        (
            [USER, USER, user([{"type": "image_url", "image_url": {"url": "x"}}])],
            "messages[2].content[0].type",
            "this model reads text only, not image_url",
        ),
        ([user([{"type": "input_audio", "input_audio": {}}])], "messages[0].content[0].type", "reads text only"),
        ([user([{"type": "file", "file": {}}])], "messages[0].content[0].type", "reads text only"),
        ([user([{"type": "text"}])], "messages[0].content[0].text", "must be text, not None"),
        ([user([text(7)])], "messages[0].content[0].text", "must be text, not 7"),
        ([user([{**text("x"), "cache_control": {}}])], "messages[0].content[0].cache_control", "unknown key"),
        ([user("ab\ud800")], "messages[0].content", "half of a surrogate pair at character 2"),
        ([user([text("\udc00")])], "messages[0].content[0].text", "half of a surrogate pair at character 0"),
        ([user("x", name="\ud800")], "messages[0].name", "half of a surrogate pair"),
        ([user("x", name=7)], "messages[0].name", "must be text, not 7"),
    ],
)
def test_refuses(sent, param, words):
    with pytest.raises(MessageError) as caught:
        read_messages(sent)
    assert caught.value.param == param
    assert words in str(caught.value)
    str(caught.value).encode()
    caught.value.param.encode()


def test_the_list_can_have_another_name():
    with pytest.raises(MessageError) as caught:
        read_messages([{"role": "user", "content": 1}], param="input")
    assert caught.value.param == "input[0].content"


def test_long_values_are_not_repeated():
    with pytest.raises(MessageError) as caught:
        read_messages([{"role": "x" * 10**6, "content": ""}])
    assert len(str(caught.value)) < 300


texts = st.text(st.characters(), max_size=8)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
roles = st.one_of(st.sampled_from(["system", "developer", "user", "assistant", "tool"]), anything)
parts = st.fixed_dictionaries(
    {}, optional={"type": st.one_of(st.just("text"), anything), "text": st.one_of(texts, anything)}
)
almost = st.fixed_dictionaries(
    {},
    optional={
        "role": roles,
        "content": st.one_of(texts, st.lists(parts, max_size=3), anything),
        "name": anything,
        "refusal": anything,
        "tool_calls": anything,
        "x": anything,
    },
)


@given(st.one_of(anything, st.lists(st.one_of(almost, anything), max_size=4)))
def test_anything_is_read_or_refused(value):
    refusal = None
    messages = []
    try:
        messages = read_messages(value)
    except MessageError as error:
        refusal = error
    if refusal is None:
        assert len(messages) == len(value)
    else:
        assert refusal.param.startswith("messages")
        str(refusal).encode()
    for message in messages:
        assert set(message) <= {"role", "content", "name"}
        assert message["role"] in {"system", "user", "assistant"}
        "".join(message.values()).encode()
