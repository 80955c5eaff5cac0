"""The engine's settings: as the user set them, else as they were tuned on this machine, else the defaults."""

from __future__ import annotations

import logging

import platformdirs

from legato.core.choices import KvType
from legato.engine.library import build_info
from legato.models import LocalModel
from legato.settings import Settings
from legato.tuning.profile import CostSettings, Profile
from legato.wire.messages import EngineSettings
from legato.worker.sizing import default_flash_attention, default_threads

DEFAULT_BATCH = 512
DEFAULT_KV_TYPE: KvType = "f16"


def engine_settings(settings: Settings, model: LocalModel, profile: Profile | None = None) -> EngineSettings:
    """The engine's part of the settings. What they leave open is as tuned, else the worker's choice or the default."""
    settings = with_profile(settings, profile)
    return EngineSettings(
        model_path=str(model.path),
        context_tokens=settings.ctx,
        parallel=settings.parallel,
        batch_tokens=settings.batch or DEFAULT_BATCH,
        threads=settings.threads,
        threads_prefill=settings.threads_prefill,
        gpu_layers=settings.gpu_layers,
        flash_attention=settings.flash_attention,
        kv_type_k=settings.kv_type_k or DEFAULT_KV_TYPE,
        kv_type_v=settings.kv_type_v or DEFAULT_KV_TYPE,
        policy=settings.policy,
        chunk=settings.chunk,
        gap_target_s=settings.gap_target_ms / 1000,
        background_wait_s=settings.background_wait,
        cache_scope=settings.cache_scope,
        cache_memory_bytes=_bytes(settings.cache_memory_mib),
        cache_disk_bytes=_bytes(settings.cache_disk_mib),
        cache_folder=settings.cache_dir or str(platformdirs.user_cache_path("legato") / "prompts"),
        joined_calls=bool(settings.joined_calls),
        interruptible=settings.interruptible,
        record_calls=not settings.no_telemetry,
        log_level=logging.DEBUG if settings.verbose else logging.ERROR,
    )


def _bytes(mib: float | None) -> int | None:
    return None if mib is None else int(mib * 2**20)


def with_profile(settings: Settings, profile: Profile | None) -> Settings:
    """The settings, with those that are left open as they were tuned.

    What was chosen together is taken together: FlashAttention and the KV types need each other, so one that was set
    otherwise leaves the rest of them to the defaults; and threads that were set are those for reading, too.
    """
    if profile is None:
        return settings
    tuned: dict[str, object] = {"batch": profile.batch_tokens, "joined_calls": profile.joined_calls}
    attention = {name: getattr(profile, name) for name in ("flash_attention", "kv_type_k", "kv_type_v")}
    if all(getattr(settings, name) in (None, value) for name, value in attention.items()):
        tuned |= attention
    if settings.threads in (None, profile.threads):
        tuned |= {"threads": profile.threads, "threads_prefill": profile.threads_prefill}
    # What was checked is copied, not read again from flags, environment and file.
    return settings.model_copy(update={name: value for name, value in tuned.items() if getattr(settings, name) is None})


def uses_profile(settings: Settings, profile: Profile | None) -> bool:
    """Whether the settings leave the profile anything to decide."""
    return with_profile(settings, profile) != settings


def cost_settings_of(engine: EngineSettings) -> CostSettings:
    """The settings that the engine's costs are remembered by; what is left open, as the worker is going to choose."""
    threads = engine.threads or default_threads()
    on_gpu = engine.gpu_layers != 0 and build_info().can_offload
    return CostSettings(
        flash_attention=engine.flash_attention
        or default_flash_attention(engine.policy, engine.kv_type_v, on_gpu=on_gpu),
        kv_type_k=engine.kv_type_k,
        kv_type_v=engine.kv_type_v,
        threads=threads,
        threads_prefill=engine.threads_prefill or threads,
        batch_tokens=engine.batch_tokens,
        gpu_layers=engine.gpu_layers,
        joined_calls=engine.joined_calls,
    )
