"""What a worker's cache is made with: budgets, the folder on disk, and what a state on disk depends on."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np

from legato.engine.batch import Batch
from legato.engine.context import Context, ContextSettings
from legato.engine.library import build_info
from legato.engine.model import Model
from legato.errors import LegatoError
from legato.kv.disk import DiskStore
from legato.kv.manager import Limits
from legato.wire.messages import EngineSettings
from legato.worker.sizing import choose_cache_disk, choose_cache_memory

logger = logging.getLogger(__name__)

OTHERS_SHARE = 0.5
"""Share of the disk budget that states of other models and settings may keep."""
SAMPLES = 64
SAMPLE_BYTES = 1 << 16
"""How much of a model file is looked at: so many pieces of so many bytes, its beginning and end among them."""


def choose_limits(settings: EngineSettings, context: Context) -> Limits:
    """What may be remembered, as the settings say or as this machine has room for.

    The context has to be a fresh one, and is empty again afterwards.
    """
    if settings.cache_scope == "off":
        return Limits(0, 0, scope="off")
    disk = choose_cache_disk(settings.cache_disk_bytes, Path(settings.cache_folder)) if settings.cache_folder else 0
    return Limits(
        choose_cache_memory(settings.cache_memory_bytes),
        disk,
        scope=settings.cache_scope,
        can_cut=can_cut(context),
        can_cut_states=context.model.window == 0,
    )


def can_cut(context: Context) -> bool:
    """Whether a model's state can be cut at any token; recurrent ones can't be."""
    batch = Batch(2)
    batch.add(0, np.zeros(2, dtype=np.int32), 0, want_logits=False)
    context.evaluate(batch)
    can = context.cut(0, 1)
    context.remove(0)
    return can


def open_store(
    settings: EngineSettings, context_settings: ContextSettings, model: Model, disk_bytes: int
) -> DiskStore | None:
    """The entries on disk, with room made for them; None if there are to be none, or can't be.

    `disk_bytes` is the budget of all entries, those of other models and settings too.
    """
    if not disk_bytes:
        return None
    try:
        store = DiskStore(Path(settings.cache_folder), state_key(settings, context_settings, model))
        store.remove_oldest_other(store.others_bytes() - int(OTHERS_SHARE * disk_bytes))
        return store
    except LegatoError as error:
        logger.warning("Prompts are not remembered on disk: %s", error)
        return None


def state_key(settings: EngineSettings, context_settings: ContextSettings, model: Model) -> str:
    """A text that names everything that a state depends on."""
    build = build_info()
    return "\n".join(
        (
            f"model {model.description} {model.parameters} {model.size_bytes} {_fingerprint(model.path)}",
            f"library {build.version} {sorted(build.features.items())}",
            f"gpu layers {settings.gpu_layers}",
            f"sequences {context_settings.sequences}",
            # Names of clients are scopes in one of them alone.
            f"scope {settings.cache_scope}",
            f"keys {context_settings.kv_type_k}, values {context_settings.kv_type_v}",
            f"FlashAttention {context_settings.flash_attention}",
        )
    )


def _fingerprint(path: Path) -> str:
    """Tells a file from others, and from itself after a change, without reading all of its gigabytes."""
    status = path.stat()
    digest = hashlib.blake2b(f"{status.st_size} {status.st_mtime_ns}".encode(), digest_size=16)
    last = max(0, status.st_size - SAMPLE_BYTES)
    with path.open("rb") as file:
        for number in range(SAMPLES):
            file.seek(last * number // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()
