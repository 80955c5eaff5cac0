"""From a model reference to a GGUF file on this computer: catalogue, hub, checksums and the store."""

from __future__ import annotations

from legato.models.gguf import GgufHeader, check_gguf
from legato.models.local_model import LocalModel
from legato.models.store import ModelStore, default_store

__all__ = ["GgufHeader", "LocalModel", "ModelStore", "check_gguf", "default_store"]
