"""What was measured on this machine, put to use: tuned settings where none are given, and costs kept for later."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from legato.engine.library import build_info
from legato.errors import LegatoError
from legato.scheduling.costs import Coefficients
from legato.settings import Settings
from legato.tuning.profile import CostSettings, Profile, ProfileStore
from legato.wire.messages import EngineSettings
from legato.worker.sizing import default_flash_attention, default_threads

logger = logging.getLogger(__name__)

TUNED = ("flash_attention", "kv_type_k", "kv_type_v", "threads", "threads_prefill", "batch", "joined_calls")
"""Settings that a profile fills in."""


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
    tuned = with_profile(settings, profile)
    return any(getattr(tuned, name) != getattr(settings, name) for name in TUNED)


def cost_settings_of(engine: EngineSettings) -> CostSettings:
    """The settings that the engine's costs are remembered by; what is left open, as the worker is going to choose."""
    threads = engine.threads or default_threads()
    return CostSettings(
        flash_attention=engine.flash_attention
        or default_flash_attention(
            engine.policy, engine.kv_type_v, on_gpu=engine.gpu_layers != 0 and build_info().can_offload
        ),
        kv_type_k=engine.kv_type_k,
        kv_type_v=engine.kv_type_v,
        threads=threads,
        threads_prefill=engine.threads_prefill or threads,
        batch_tokens=engine.batch_tokens,
        gpu_layers=engine.gpu_layers,
        joined_calls=engine.joined_calls,
    )


class CostKeeper:
    """Remembers what calls cost for the next start, without holding the event loop up.

    Args:
        profiles: Where.
        model_path: The model.
        settings: What the costs hold for.
        known: What is remembered already.
    """

    def __init__(
        self, profiles: ProfileStore, model_path: Path, settings: CostSettings, known: Coefficients | None
    ) -> None:
        self._profiles = profiles
        self._model_path = model_path
        self._settings = settings
        self._newest = known
        self._saving: asyncio.Task[None] | None = None

    def remember(self, costs: Coefficients) -> None:
        """Save in a thread; of what comes while that goes on only the newest is saved. Call it in the event loop."""
        if costs == self._newest:
            return
        self._newest = costs
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save())

    async def close(self) -> None:
        """Wait until everything is saved."""
        if self._saving is not None:
            await self._saving

    async def _save(self) -> None:
        saved = None
        while (costs := self._newest) is not None and costs is not saved:
            try:
                await asyncio.to_thread(self._profiles.save_costs, self._model_path, self._settings, costs)
            except LegatoError as error:
                logger.warning("what calls cost is not remembered: %s", error)
            saved = costs
