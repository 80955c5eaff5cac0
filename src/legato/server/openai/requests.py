"""Request bodies of OpenAI's API: what is supported, with its bounds, and what is refused by name."""

from __future__ import annotations

import dataclasses
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from legato.core.origin import Endpoint, ServiceTier
from legato.core.sampling import SamplingParameters
from legato.server.api_error import invalid
from legato.settings import MAX_GAP_TARGET_MS, MIN_GAP_TARGET_MS

SAMPLING = SamplingParameters(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
"""What is not asked for is llama.cpp's, which people who run models at home are used to."""
_SAMPLED = {
    *("temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"),
}
MAX_CHOICES = 16
MAX_STOPS = 16
MAX_TOKENS = 2**31 - 1
MAX_SEED = 2**32 - 1
"""The library takes 32-bit seeds, and reads this one as a wish for a random seed."""

_UNSUPPORTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "tools": ((None, []), "Tool calls are not supported yet"),
    "tool_choice": ((None, "none", "auto"), "Tool calls are not supported yet"),
    "parallel_tool_calls": ((None, True, False), "Tool calls are not supported yet"),
    "functions": ((None, []), "Tool calls are not supported yet"),
    "function_call": ((None, "none", "auto"), "Tool calls are not supported yet"),
    "response_format": ((None, {"type": "text"}), "Structured output is not supported yet, only plain text"),
    "modalities": ((None, ["text"]), "Only text is written"),
    "audio": ((None,), "Only text is written"),
    "prediction": ((None,), "Predicted output is not supported"),
    "reasoning_effort": (
        (None, "none"),
        "Reasoning effort can't be set; chat_template_kwargs may do it for this model",
    ),
    "verbosity": ((None, "medium"), "Verbosity can't be set; say it in the prompt"),
    "web_search_options": ((None,), "There is no web search"),
    "moderation": ((None,), "There is no moderation"),
    "store": ((None, False), "Answers are not stored"),
    "metadata": ((None, {}), "Metadata belongs to stored answers, and none are stored"),
    "prompt_cache_options": ((None,), "Prompt caching can't be controlled"),
    "prompt_cache_retention": ((None,), "Prompt caching can't be controlled"),
    "suffix": ((None, ""), "Filling in before a suffix is not supported"),
    "best_of": ((None, 1), "The best of several answers is not chosen; ask for n and choose"),
}
"""Documented parameters that are not supported: values that ask for nothing, and what to say to others."""


def _check_text(label: str) -> str:
    """JSON can spell half of a surrogate pair, which is no text."""
    try:
        label.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is not text") from None
    return label


Label = Annotated[str, AfterValidator(_check_text)]
"""A name of the client's own; it changes nothing."""


def _list_of_one(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _token_keys(value: Any) -> Any:
    """JSON spells the token ids of a logit bias as strings."""
    if not isinstance(value, dict):
        return value
    if not all(isinstance(key, str) and key.isdecimal() for key in value):
        raise ValueError("the keys are token ids, such as {'42': -100}")
    return {int(key): bias for key, bias in value.items()}


class StreamOptions(BaseModel):
    """What a stream carries beside the answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool | None = None
    """Send a last chunk with the token counts."""
    continuous_usage_stats: bool | None = None
    """Send the token counts so far with every part of the answer, as vLLM does."""
    include_progress: bool | None = None
    """Send chunks without choices that tell how far the prompt is read."""
    include_obfuscation: Literal[False] | None = None
    """Padding against eavesdroppers, which there is none of."""


class CommonRequest(BaseModel, ABC):
    """What chats and completions share."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    endpoint: ClassVar[Endpoint]
    prompt_param: ClassVar[str]
    """The parameter that prompts come in."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    n: int | None = Field(1, ge=1, le=MAX_CHOICES)
    seed: int | None = None
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1000)]] | None, BeforeValidator(_list_of_one)
    ] = Field(None, max_length=MAX_STOPS)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=2**31 - 1)
    min_p: float | None = Field(None, ge=0, le=1)
    typical_p: float | None = Field(None, gt=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: Annotated[dict[int, Annotated[float, Field(ge=-100, le=100)]] | None, BeforeValidator(_token_keys)] = (
        Field(None, max_length=1024)
    )
    ignore_eos: bool | None = False
    service_tier: str | None = None
    """`flex` makes it background work."""
    gap_target_ms: float | None = Field(None, ge=MIN_GAP_TARGET_MS, le=MAX_GAP_TARGET_MS)
    """Longest gap between tokens that the reader should see; None for the key's or the server's."""
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None

    @field_validator("service_tier")
    @classmethod
    def _check_tier(cls, tier: str | None) -> str | None:
        """Refused by name, as documented values of the other parameters are that are not supported."""
        if tier not in (None, "auto", "default", "flex"):
            raise invalid(
                "The service tiers here are default and flex (background work); send one of them, or leave "
                "service_tier out.",
                "service_tier",
                "unsupported_parameter",
            )
        return tier

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        kept = dict(data)
        for name, (neutral, why) in _UNSUPPORTED.items():
            if name not in kept or name in cls.model_fields:
                continue
            given = kept.pop(name)
            # As JSON has it, where `1` is not `true`.
            if not any(type(given) is type(value) and given == value for value in neutral):
                raise invalid(f"{why}; leave {name} out.", name, "unsupported_parameter")
        return kept

    @property
    def answer_limit(self) -> int | None:
        """Most tokens of the answer, None for as many as fit."""
        return self.max_tokens

    @property
    @abstractmethod
    def logprob_count(self) -> int | None:
        """How many likeliest tokens to report, None for no log-probabilities."""

    @property
    def choices(self) -> int:
        """How many answers are wanted to each prompt."""
        return self.n or 1

    @property
    def tier(self) -> ServiceTier:
        """How it wants to be served."""
        return "flex" if self.service_tier == "flex" else "default"

    @property
    def streamed(self) -> StreamOptions:
        """What a stream is to carry beside the answer."""
        return self.stream_options or StreamOptions()

    def sampling(self, vocabulary_size: int) -> list[SamplingParameters]:
        """Parameters of each choice: the same but for their seeds, which count up from the wanted one.

        Raises:
            ApiError: A biased token is not in the vocabulary.
        """
        for token in self.logit_bias or {}:
            if token >= vocabulary_size:
                message = f"logit_bias names token {token}, and this model's vocabulary has {vocabulary_size}."
                raise invalid(message, "logit_bias")
        asked = self.model_dump(include=_SAMPLED, exclude_none=True)
        asked["top_k"] = max(0, asked.get("top_k", SAMPLING.top_k))
        seed = secrets.randbits(32) if self.seed is None else self.seed
        return [
            dataclasses.replace(SAMPLING, **asked, seed=(seed + choice) % MAX_SEED, ignore_end=bool(self.ignore_eos))
            for choice in range(self.choices)
        ]

    @model_validator(mode="after")
    def _check_stream_options(self) -> CommonRequest:
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options go with stream: true.", "stream_options", "invalid_parameter_combination")
        return self


class ChatRequest(CommonRequest):
    """Body of `POST /v1/chat/completions`."""

    endpoint = "chat"
    prompt_param = "messages"
    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    chat_template_kwargs: dict[str, Any] | None = None
    """Variables for the model's template, such as `{"enable_thinking": false}`."""
    continue_final_message: bool | None = False
    """Go on in the last message, which must be the assistant's, instead of answering it."""
    truncation: Literal["auto", "disabled"] | None = None
    """`auto` drops the oldest turns of a conversation that does not fit; disabled if left out."""

    @model_validator(mode="after")
    def _check_combinations(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs goes with logprobs: true.", "top_logprobs")
        both = (self.max_tokens, self.max_completion_tokens)
        if None not in both and both[0] != both[1]:
            message = "max_tokens and max_completion_tokens are two names of one limit; send one of them."
            raise invalid(message, "max_tokens")
        return self

    @property
    def answer_limit(self) -> int | None:
        """The same by either of its names."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def logprob_count(self) -> int | None:
        """As many as `top_logprobs` says."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(CommonRequest):
    """Body of `POST /v1/completions`."""

    endpoint = "completions"
    prompt_param = "prompt"
    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: int | None = Field(16, ge=1, le=MAX_TOKENS)
    echo: bool | None = False
    logprobs: int | None = Field(None, ge=0, le=20)

    @model_validator(mode="after")
    def _check_combinations(self) -> CompletionRequest:
        if self.echo and self.logprobs is not None:
            message = "echo with logprobs would need those of the prompt, which are not supported; send one of them."
            raise invalid(message, "echo", "unsupported_parameter")
        return self

    @property
    def logprob_count(self) -> int | None:
        """As many as `logprobs` says."""
        return self.logprobs

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts, as texts or as tokens."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if prompt and isinstance(prompt[0], int):
            return [[t for t in prompt if isinstance(t, int)]]
        return prompt  # type: ignore[return-value]
