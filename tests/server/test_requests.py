"""Request bodies of OpenAI's API: what is taken, and what is refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from pydantic import ValidationError

from legato.core.sampling import SamplingParameters
from legato.server.api_error import ApiError
from legato.server.openai.requests import MAX_CHOICES, MAX_STOPS, ChatRequest, CompletionRequest

VOCABULARY_SIZE = 1000
MESSAGES = [{"role": "user", "content": "Hello"}]

CHAT_PARAMETERS = sorted(
    chat_create_params.CompletionCreateParamsBase.__annotations__
    | chat_create_params.CompletionCreateParamsStreaming.__annotations__
)
COMPLETION_PARAMETERS = sorted(
    completion_create_params.CompletionCreateParamsBase.__annotations__
    | completion_create_params.CompletionCreateParamsStreaming.__annotations__
)


def chat(**parameters: Any) -> ChatRequest:
    return ChatRequest.model_validate({"messages": MESSAGES, **parameters})


def completion(**parameters: Any) -> CompletionRequest:
    return CompletionRequest.model_validate({"prompt": "Once", **parameters})


both = pytest.mark.parametrize("make", [chat, completion])


def assert_invalid(make: Any, name: str, value: Any) -> None:
    """The body is refused for that parameter's value."""
    with pytest.raises(ValidationError) as caught:
        make(**{name: value})
    first = caught.value.errors()[0]
    assert first["loc"][0] == name
    assert first["type"] != "extra_forbidden"


def assert_refused(make: Any, param: str, code: str, **parameters: Any) -> None:
    with pytest.raises(ApiError) as caught:
        make(**parameters)
    error = caught.value
    assert (error.status_code, error.param, error.code) == (400, param, code)
    assert param in error.message


# Every parameter of the official client


@pytest.mark.parametrize("name", CHAT_PARAMETERS)
def test_every_chat_parameter_of_the_official_client_is_taken_or_refused_by_name(name: str) -> None:
    if name not in ChatRequest.model_fields:
        assert_refused(chat, name, "unsupported_parameter", **{name: {"something": "else"}})


@pytest.mark.parametrize("name", COMPLETION_PARAMETERS)
def test_every_completion_parameter_of_the_official_client_is_taken_or_refused_by_name(name: str) -> None:
    if name not in CompletionRequest.model_fields:
        assert_refused(completion, name, "unsupported_parameter", **{name: {"something": "else"}})


def test_the_official_parameters_are_found() -> None:
    assert {"messages", "model", "stream", "temperature", "tools"} <= set(CHAT_PARAMETERS)
    assert {"prompt", "model", "stream", "best_of", "echo"} <= set(COMPLETION_PARAMETERS)


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", []),
        ("tool_choice", "none"),
        ("tool_choice", "auto"),
        ("parallel_tool_calls", True),
        ("parallel_tool_calls", False),
        ("functions", []),
        ("function_call", "none"),
        ("response_format", {"type": "text"}),
        ("modalities", ["text"]),
        ("reasoning_effort", "none"),
        ("verbosity", "medium"),
        ("service_tier", "auto"),
        ("service_tier", "default"),
        ("service_tier", None),
        ("gap_target_ms", None),
        ("store", False),
        ("metadata", {}),
        ("suffix", ""),
        ("best_of", 1),
        ("user", "ada"),
        ("safety_identifier", "ada"),
        ("prompt_cache_key", "ada"),
        ("stop", []),
        ("stop", None),
        ("logit_bias", {}),
        ("n", 1),
        ("stream", False),
        ("stream_options", None),
        ("temperature", 1),
        ("top_p", 1),
        ("presence_penalty", 0),
        ("frequency_penalty", 0),
    ],
)
def test_values_that_ask_for_nothing_are_taken(make: Any, name: str, value: Any) -> None:
    make(**{name: value})


@pytest.mark.parametrize("name", CHAT_PARAMETERS)
def test_null_asks_for_nothing_in_a_chat(name: str) -> None:
    if name != "messages":
        chat(**{name: None})


@pytest.mark.parametrize("name", COMPLETION_PARAMETERS)
def test_null_asks_for_nothing_in_a_completion(name: str) -> None:
    if name != "prompt":
        completion(**{name: None})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("tools", False),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
        ("response_format", {"type": "json_object"}),
        ("modalities", ["text", "audio"]),
        ("service_tier", "priority"),
        ("store", True),
        ("store", 0),
        ("metadata", {"a": "b"}),
        ("reasoning_effort", "high"),
        ("verbosity", "low"),
        ("suffix", "end"),
        ("best_of", 2),
        ("best_of", True),
    ],
)
@both
def test_other_values_of_unsupported_parameters_are_refused(make: Any, name: str, value: Any) -> None:
    assert_refused(make, name, "unsupported_parameter", **{name: value})


@both
@pytest.mark.parametrize("name", ["temprature", "max_token", "System", "input", "__class__", ""])
def test_unknown_parameters_are_refused(make: Any, name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make(**{name: 1})
    first = caught.value.errors()[0]
    assert (first["type"], first["loc"]) == ("extra_forbidden", (name,))


@both
@pytest.mark.parametrize("body", [None, [], "text", 3, [["messages", []]]])
def test_a_body_that_is_no_object_is_refused(make: Any, body: Any) -> None:
    kind = ChatRequest if make is chat else CompletionRequest
    with pytest.raises(ValidationError):
        kind.model_validate(body)


def test_what_is_needed_is_asked_for() -> None:
    for kind, name in ((ChatRequest, "messages"), (CompletionRequest, "prompt")):
        with pytest.raises(ValidationError) as caught:
            kind.model_validate({})
        assert caught.value.errors()[0]["loc"] == (name,)


# Wrong types and absurd numbers

WHOLE_NUMBERS = ["max_tokens", "n", "seed", "top_k"]
NUMBERS = [
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
]
FLAGS = ["stream", "ignore_eos"]
TEXTS = ["model", "user", "safety_identifier", "prompt_cache_key"]


@both
@pytest.mark.parametrize("name", WHOLE_NUMBERS)
@pytest.mark.parametrize("value", [True, "1", 1.5, 1.0, math.nan, math.inf, [1], {}])
def test_whole_numbers_are_nothing_else(make: Any, name: str, value: Any) -> None:
    assert_invalid(make, name, value)


@both
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "value", [True, "1", "nan", math.nan, math.inf, -math.inf, 10**30, 10**400, 1e300, -3, [1], {}]
)
def test_numbers_are_numbers_within_reason(make: Any, name: str, value: Any) -> None:
    assert_invalid(make, name, value)


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 10**30),
        ("n", 0),
        ("n", -1),
        ("n", MAX_CHOICES + 1),
        ("n", 10**30),
        ("top_k", -2),
        ("top_k", 2**31),
        ("top_k", 10**30),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", 0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("typical_p", 0),
        ("typical_p", 1.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 10.1),
        ("presence_penalty", -2.1),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", 2.1),
    ],
)
def test_numbers_have_bounds(make: Any, name: str, value: Any) -> None:
    assert_invalid(make, name, value)


@both
@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", [0, 1, "true", "false", [], {}])
def test_flags_are_true_or_false(make: Any, name: str, value: Any) -> None:
    assert_invalid(make, name, value)


@both
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", [1, True, ["a"], {}])
def test_texts_are_text(make: Any, name: str, value: Any) -> None:
    assert_invalid(make, name, value)


@pytest.mark.parametrize("value", [None, "Hello", {"role": "user"}, ["Hello"], [MESSAGES], [1]])
def test_messages_are_a_list_of_objects(value: Any) -> None:
    assert_invalid(chat, "messages", value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_completion_tokens", 0),
        ("max_completion_tokens", True),
        ("max_completion_tokens", "5"),
        ("max_completion_tokens", 10**30),
        ("logprobs", 1),
        ("logprobs", "true"),
        ("top_logprobs", -1),
        ("top_logprobs", 21),
        ("top_logprobs", True),
        ("top_logprobs", 10**30),
        ("chat_template_kwargs", []),
        ("chat_template_kwargs", "x"),
        ("continue_final_message", 1),
    ],
)
def test_parameters_of_chats_have_types_and_bounds(name: str, value: Any) -> None:
    assert_invalid(chat, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("echo", 1),
        ("logprobs", True),
        ("logprobs", -1),
        ("logprobs", 21),
        ("logprobs", 10**30),
        ("prompt", None),
        ("prompt", 5),
        ("prompt", True),
        ("prompt", {}),
        ("prompt", [1, "a"]),
        ("prompt", [1.5]),
        ("prompt", [True]),
        ("prompt", [[1], "a"]),
        ("prompt", [[[1]]]),
    ],
)
def test_parameters_of_completions_have_types_and_bounds(name: str, value: Any) -> None:
    assert_invalid(completion, name, value)


# Service tiers and gap targets


@both
@pytest.mark.parametrize(
    ("asked", "tier"), [(None, "default"), ("auto", "default"), ("default", "default"), ("flex", "flex")]
)
def test_flex_is_background_work(make: Any, asked: str | None, tier: str) -> None:
    assert make(service_tier=asked).tier == tier
    assert make().tier == "default"


@both
@pytest.mark.parametrize("tier", ["priority", "fast", "scale", "Flex", "", "background"])
def test_other_tiers_are_refused_by_name(make: Any, tier: str) -> None:
    assert_refused(make, "service_tier", "unsupported_parameter", service_tier=tier)


@both
@pytest.mark.parametrize("value", [1, True, ["flex"], {}])
def test_a_tier_is_text(make: Any, value: Any) -> None:
    assert_invalid(make, "service_tier", value)


@both
@pytest.mark.parametrize("value", [1, 60_000, 99.5])
def test_gap_targets_within_bounds_are_taken(make: Any, value: float) -> None:
    assert make(gap_target_ms=value).gap_target_ms == value


@both
@pytest.mark.parametrize("value", [0, 0.99, -5, 60_001, math.nan, math.inf, 10**400, True, "50", [50], {}])
def test_other_gap_targets_are_refused(make: Any, value: Any) -> None:
    assert_invalid(make, "gap_target_ms", value)


# Stop strings


@both
@pytest.mark.parametrize(
    ("value", "stops"), [("end", ["end"]), (["end"], ["end"]), (["a", "b", "\n"], ["a", "b", "\n"]), (None, None)]
)
def test_stop_is_a_string_or_several(make: Any, value: Any, stops: list[str] | None) -> None:
    assert make(stop=value).stop == stops


@both
@pytest.mark.parametrize(
    "value",
    ["", [""], ["a", ""], ["a"] * (MAX_STOPS + 1), "x" * 1001, ["x" * 1001], 5, [5], [None], True, {"a": 1}, [["a"]]],
)
def test_other_stops_are_refused(make: Any, value: Any) -> None:
    assert_invalid(make, "stop", value)


@both
def test_as_many_stops_as_promised_are_taken(make: Any) -> None:
    assert len(make(stop=["x" * 1000] * MAX_STOPS).stop) == MAX_STOPS


# Logit bias


@both
def test_the_tokens_of_a_logit_bias_are_spelled_as_strings(make: Any) -> None:
    assert make(logit_bias={"0": -100, "42": 1, "999": 99.5}).logit_bias == {0: -100.0, 42: 1.0, 999: 99.5}


@both
@pytest.mark.parametrize("key", ["", "a", "-1", "1.0", "1e3", " 1", "0x1", "½", "²", "9" * 5000, 1])
def test_keys_of_a_logit_bias_are_token_ids(make: Any, key: Any) -> None:
    assert_invalid(make, "logit_bias", {key: 1})


@both
@pytest.mark.parametrize("value", [True, "1", None, 100.1, -100.1, math.nan, math.inf, 10**30, [1]])
def test_values_of_a_logit_bias_have_types_and_bounds(make: Any, value: Any) -> None:
    assert_invalid(make, "logit_bias", {"1": value})


@both
@pytest.mark.parametrize("value", [[], [1], "1", 1, True])
def test_a_logit_bias_is_an_object(make: Any, value: Any) -> None:
    assert_invalid(make, "logit_bias", value)


@both
def test_a_logit_bias_has_a_limit(make: Any) -> None:
    make(logit_bias={str(token): 1 for token in range(1024)})
    assert_invalid(make, "logit_bias", {str(token): 1 for token in range(1025)})


@both
@pytest.mark.parametrize("token", [VOCABULARY_SIZE, 10**30])
def test_a_bias_for_a_token_that_is_not_in_the_vocabulary_is_refused(make: Any, token: int) -> None:
    request = make(logit_bias={"5": 1, str(token): 1})
    assert_refused(request.sampling, "logit_bias", "invalid_value", vocabulary_size=VOCABULARY_SIZE)


# What it comes to


@both
def test_sampling_defaults_are_those_of_llama_cpp(make: Any) -> None:
    for parameters in ({}, dict.fromkeys([*WHOLE_NUMBERS, *NUMBERS, *FLAGS, "logit_bias"])):
        (sampling,) = make(**parameters).sampling(VOCABULARY_SIZE)
        assert sampling == SamplingParameters(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=sampling.seed)


@both
def test_sampling_is_as_wished(make: Any) -> None:
    wished: dict[str, Any] = {
        "temperature": 0.0,
        "top_k": 7,
        "top_p": 0.5,
        "min_p": 0.25,
        "typical_p": 0.75,
        "repetition_penalty": 1.5,
        "presence_penalty": -1.5,
        "frequency_penalty": 1.25,
        "seed": 5,
    }
    (sampling,) = make(**wished, logit_bias={"3": -1}, ignore_eos=True).sampling(VOCABULARY_SIZE)
    assert sampling == SamplingParameters(**wished, logit_bias={3: -1.0}, ignore_end=True)


@both
@pytest.mark.parametrize("top_k", [-1, 0])
def test_top_k_can_be_turned_off(make: Any, top_k: int) -> None:
    assert make(top_k=top_k).sampling(VOCABULARY_SIZE)[0].top_k == 0


@both
def test_choices_have_seeds_that_count_up(make: Any) -> None:
    assert [s.seed for s in make(n=3, seed=5).sampling(VOCABULARY_SIZE)] == [5, 6, 7]


@given(seed=st.integers(-(10**30), 10**30) | st.integers(2**32 - 20, 2**32), n=st.integers(1, MAX_CHOICES))
def test_seeds_are_different_and_within_the_bounds_of_the_library(seed: int, n: int) -> None:
    seeds = [s.seed for s in chat(seed=seed, n=n).sampling(VOCABULARY_SIZE)]
    assert len(set(seeds)) == n
    # The library reads 2**32 - 1 as a wish for a random seed.
    assert all(0 <= s < 2**32 - 1 for s in seeds)
    assert seeds == [s.seed for s in chat(seed=seed, n=n).sampling(VOCABULARY_SIZE)]


@both
def test_without_a_seed_every_request_has_another(make: Any) -> None:
    assert len({make().sampling(VOCABULARY_SIZE)[0].seed for _ in range(20)}) > 1


@both
def test_choices_differ_in_their_seeds_only(make: Any) -> None:
    samplings = make(n=2, temperature=0.5, seed=1).sampling(VOCABULARY_SIZE)
    assert [(s.temperature, s.top_k) for s in samplings] == [(0.5, 40)] * 2


@both
def test_null_choices_are_one(make: Any) -> None:
    assert make(n=None).choices == make().choices == 1


def test_the_answer_limit_has_two_names_in_a_chat() -> None:
    assert chat().answer_limit is None
    assert chat(max_tokens=5).answer_limit == 5
    assert chat(max_completion_tokens=5).answer_limit == 5
    assert chat(max_tokens=5, max_completion_tokens=5).answer_limit == 5
    assert_refused(chat, "max_tokens", "invalid_value", max_tokens=5, max_completion_tokens=6)


def test_completions_are_sixteen_tokens_long_by_default() -> None:
    assert completion().max_tokens == 16


def test_logprobs_of_a_chat() -> None:
    assert chat().logprob_count is None
    assert chat(logprobs=True).logprob_count == 0
    assert chat(logprobs=True, top_logprobs=5).logprob_count == 5
    assert_refused(chat, "top_logprobs", "invalid_value", top_logprobs=5)
    assert_refused(chat, "top_logprobs", "invalid_value", logprobs=False, top_logprobs=0)


def test_echo_with_logprobs_is_refused() -> None:
    assert completion(echo=True).echo
    assert_refused(completion, "echo", "unsupported_parameter", echo=True, logprobs=0)


@both
def test_stream_options_go_with_a_stream(make: Any) -> None:
    assert make(stream=True, stream_options={"include_usage": True}).streamed.include_usage
    assert not make(stream=True, stream_options={"include_usage": False}).streamed.include_usage
    assert not make(stream=True).streamed.include_usage
    assert_refused(
        make, "stream_options", "invalid_parameter_combination", stream_options={"include_usage": True}, stream=False
    )
    assert_invalid(make, "stream_options", True)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("Once", ["Once"]),
        (["Once", "Twice"], ["Once", "Twice"]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ("", [""]),
    ],
)
def test_prompts_are_texts_or_tokens(prompt: Any, prompts: Any) -> None:
    assert completion(prompt=prompt).prompts == prompts


def test_bodies_do_not_change_their_input() -> None:
    body = {"messages": MESSAGES, "tools": [], "stop": "a", "logit_bias": {"1": 1}}
    before = {**body}
    ChatRequest.model_validate(body)
    assert body == before
