"""The server's settings: one declaration for flags, environment variables and `legato.toml`.

A flag wins over a `LEGATO_…` variable, that over the file, and that over the default.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import platformdirs
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from legato.core.choices import CacheScope, FlashAttention, KvType, PolicyName
from legato.errors import LegatoError
from legato.models.catalogue import DEFAULT_MODEL

ENV_PREFIX = "LEGATO_"
OTHER_VARIABLES = frozenset({"LEGATO_MODELS_DIR", "LEGATO_CONFIG", "LEGATO_CHAT_KEY", "LEGATO_TUNING"})
"""Variables with the prefix that are no settings of the server."""
MIN_GAP_TARGET_MS = 1.0
MAX_GAP_TARGET_MS = 60_000.0
MAX_CHUNK = 8192
"""Most prompt tokens that a step can be told to read."""


def _split_commas(value: Any) -> Any:
    """Environment variables carry lists as text with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def secret(api_key: str) -> str:
    """What a client sends of an API key that the settings write KEY or NAME=KEY."""
    return api_key.rpartition("=")[2]


def key_name(api_key: str) -> str | None:
    """Whose key it is, if the settings say."""
    return api_key.rpartition("=")[0] or None


def _check_key(key: str) -> str:
    name, separator, secret = key.rpartition("=")
    if not secret or (separator and not name):
        raise ValueError("an API key is written KEY or NAME=KEY")
    return key


def key_gap_target_ms(gap_target: str) -> tuple[str, float]:
    """The name of a key and its gap target in ms, from NAME=MS.

    Raises:
        ValueError: It is written otherwise, or out of bounds; the sentence lacks its full stop.
    """
    name, _, number = gap_target.rpartition("=")
    try:
        target_ms = float(number)
    except ValueError:
        target_ms = math.nan
    if not name or not MIN_GAP_TARGET_MS <= target_ms <= MAX_GAP_TARGET_MS:
        raise ValueError(
            f"a key's gap target is written NAME=MS, with {MIN_GAP_TARGET_MS:g} to {MAX_GAP_TARGET_MS:g} ms, "
            f"not {gap_target!r}"
        )
    return name, target_ms


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_commas)]
Keys = Annotated[tuple[Annotated[str, AfterValidator(_check_key)], ...], NoDecode, BeforeValidator(_split_commas)]


class Settings(BaseSettings):
    """Everything that `legato serve` can be told."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True, validate_default=True)

    model: str = Field(
        DEFAULT_MODEL, description="Model to serve: a GGUF file, a catalogue name, or hf:owner/repo[:quant-or-file]."
    )
    alias: str | None = Field(None, description="Name that clients call the model by; its own name, if left out.")
    host: str = Field("127.0.0.1", description="Address to listen on. Others than loopback demand an API key.")
    port: int = Field(8383, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    policy: PolicyName = Field(
        "adaptive",
        description="How prompts are read beside running answers: adaptive (in pieces that keep to the gap target), "
        "chunked (in pieces of one size) or whole (answers wait).",
    )
    chunk: int | None = Field(
        None,
        ge=1,
        le=MAX_CHUNK,
        description="Prompt tokens that one step reads with --policy chunked; 64 on a CPU, 512 on a GPU.",
    )
    ctx: int | None = Field(
        None, ge=256, description="Tokens of one conversation, prompt and answer; the model's own, at most 8192."
    )
    parallel: int | None = Field(
        None, ge=1, le=256, description="Answers written at once, others wait; as many as memory allows, at most 4."
    )
    gap_target_ms: float = Field(
        100.0,
        ge=MIN_GAP_TARGET_MS,
        le=MAX_GAP_TARGET_MS,
        description="Longest gap between two tokens that readers of answers should see, in ms; longer ones are stalls.",
    )
    background_wait: float = Field(
        600.0, ge=0, le=86_400, description="Seconds after which a background request is served like others."
    )
    max_queue: int = Field(64, ge=0, description="Requests that may wait; beyond that clients get a 429.")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads for writing; one a core.")
    threads_prefill: int | None = Field(None, ge=1, le=1024, description="CPU threads for reading; as for writing.")
    gpu_layers: int = Field(-1, ge=-1, description="Layers to keep on a GPU; -1 keeps all.")
    flash_attention: FlashAttention | None = Field(
        None, description="FlashAttention: on, off or auto (the library's choice); by hardware, if left out."
    )
    kv_type_k: KvType | None = Field(
        None, description="Number format of the KV cache's keys; as tuned by legato tune, else f16."
    )
    kv_type_v: KvType | None = Field(
        None, description="Number format of the KV cache's values; as tuned by legato tune, else f16."
    )
    batch: int | None = Field(
        None,
        ge=32,
        le=8192,
        description="Most tokens in one call of the library; as tuned by legato tune, else 512.",
    )
    joined_calls: bool | None = Field(
        None,
        description="Write and read in one library call a step: better on most GPUs, slower on most CPUs; "
        "as tuned by legato tune, else not.",
    )
    interruptible: bool | None = Field(
        None,
        description="Interrupt the reading of long prompts for running answers, on CPUs with policy adaptive; "
        "on, where it is possible.",
    )
    chat_template: str | None = Field(
        None, description="Chat template instead of the model's own: a Jinja file, or a built-in name such as chatml."
    )
    api_keys: Keys = Field((), description="API keys that clients must send one of, each KEY or NAME=KEY.")
    admins: Texts = Field((), description="Names of API keys that may change settings while the server runs.")
    background_clients: Texts = Field(
        (), description="Names of API keys whose requests are background work, which gets what others leave."
    )
    gap_targets: Texts = Field((), description="Gap targets of API keys' answers, each NAME=MS.")
    no_auth: bool = Field(False, description="Listen on other addresses than loopback without an API key.")
    allowed_hosts: Texts = Field(
        (), description="Names that the server is reached by, beside localhost, addresses and this machine's name."
    )
    cors_origins: Texts = Field((), description="Web origins whose pages may call the API, such as https://chat.home.")
    max_body_mib: float = Field(8.0, gt=0, le=1024, description="Largest request body, in MiB.")
    grace: float = Field(10.0, ge=0, le=3600, description="Seconds that running answers get when the server stops.")
    cache_scope: CacheScope = Field(
        "server",
        description="Whose remembered prompts a request may begin with: everybody's (server), those of its own API key "
        "(key), or none (off). Who shares them can tell from the time to the first token what others have sent.",
    )
    cache_memory_mib: float | None = Field(
        None, ge=0, description="Memory for remembered prompts, in MiB; an eighth of what is free, at most 4096."
    )
    cache_disk_mib: float | None = Field(
        None,
        ge=0,
        description="Disk space for remembered prompts, which survive restarts, in MiB; a tenth of what is free, at "
        "most 8192. 0 keeps none there.",
    )
    cache_dir: str | None = Field(
        None, description="Folder of remembered prompts, which only you can read; in your cache folder, if left out."
    )
    history: str | None = Field(
        None, description="SQLite file that remembers ended requests; off for none; in your state folder, if left out."
    )
    history_days: float = Field(30.0, gt=0, description="Days that ended requests are remembered.")
    history_mib: float = Field(256.0, ge=1, description="Largest size of the history, in MiB; the oldest go first.")
    no_telemetry: bool = Field(
        False, description="Don't record the engine's steps: answers keep their phases, and lose the causes of waits."
    )
    verbose: bool = Field(False, description="Log requests and the library's messages.")

    @field_validator("admins", "background_clients", "gap_targets")
    @classmethod
    def _check_names(cls, values: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Each entry is about an API key that has that name."""
        is_target = info.field_name == "gap_targets"
        # Keys that are wrong themselves are missing here, and are told of first.
        known = {key_name(key) for key in info.data.get("api_keys", ())}
        named: set[str] = set()
        for value in values:
            name = key_gap_target_ms(value)[0] if is_target else value
            if name not in known:
                raise ValueError(f"no API key is named {name!r}; name one so with --api-key {name}=KEY")
            if is_target and name in named:
                raise ValueError(f"the key {name!r} has two gap targets; give it one")
            named.add(name)
        return values

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file."""
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config_file()))


def config_file() -> Path | None:
    """The settings file: that of LEGATO_CONFIG, `legato.toml` here, or the user's own; None if none is there.

    Raises:
        LegatoError: LEGATO_CONFIG names a file that is not there.
    """
    named = os.environ.get("LEGATO_CONFIG")
    if named:
        if not Path(named).is_file():
            raise LegatoError(f"LEGATO_CONFIG names {named}, and there is no such file.")
        return Path(named)
    places = (Path("legato.toml"), platformdirs.user_config_path("legato") / "legato.toml")
    return next((place for place in places if place.is_file()), None)


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings from all sources; the flags are what the command line said, by field name.

    Raises:
        LegatoError: A setting is unknown or has a wrong value; the sentence names it and where it was set.
    """
    flags = flags or {}
    _refuse_unknown_variables()
    path = config_file()
    try:
        return Settings(**flags)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LegatoError(f"{path} is not valid TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        raise LegatoError(f"{_spelled(name, flags, path)}: {_reason(name, first)}") from error


def _refuse_unknown_variables() -> None:
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields} | OTHER_VARIABLES
    for variable in os.environ:
        if variable.upper().startswith(ENV_PREFIX) and variable.upper() not in known:
            guess = _closest(variable.upper(), known, ENV_PREFIX)
            raise LegatoError(f"The environment variable {variable} is not a setting{guess}.")


def _spelled(name: str, flags: Mapping[str, Any], path: Path | None) -> str:
    """The setting as the person wrote it, and where."""
    if name in flags:
        return "MODEL" if name == "model" else flag_name(name)
    for variable in os.environ:
        if variable.upper() == ENV_PREFIX + name.upper():
            return variable
    return f"{name} in {path}"


def _reason(name: str, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"there is no such setting{_closest(name, Settings.model_fields)}."
    message = str(error["msg"]).removeprefix("Value error, ")
    # A secret that was mistyped is still one; and what the settings check themselves says what was given.
    given = "" if name == "api_keys" or error["type"] == "value_error" else f", not {error['input']!r}"
    return f"{message[0].lower()}{message[1:]}{given}."


def _closest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """A guess at what was meant; a prefix that all names share does not count."""
    names = [other.removeprefix(prefix) for other in known]
    close = difflib.get_close_matches(name.removeprefix(prefix), names, 1)
    return f"; did you mean {prefix}{close[0]}" if close else ""


def flag_name(name: str) -> str:
    """How the command line spells a setting: lists take one value a time, so theirs is singular."""
    singular = name.removesuffix("s") if Settings.model_fields[name].default == () else name
    return f"--{singular.replace('_', '-')}"
