"""From a model reference to a GGUF file on this computer: catalogue, hub, checksums and the store."""

from __future__ import annotations

from legato.models.catalogue import CATALOGUE, DEFAULT_MODEL, CatalogueEntry, WheelMember
from legato.models.gguf import GgufHeader, check_gguf, read_header
from legato.models.local_model import LocalModel
from legato.models.reference import CatalogueReference, HubReference, PathReference, Reference, parse_reference
from legato.models.store import ModelStore, default_store

__all__ = [
    "CATALOGUE",
    "DEFAULT_MODEL",
    "CatalogueEntry",
    "CatalogueReference",
    "GgufHeader",
    "HubReference",
    "LocalModel",
    "ModelStore",
    "PathReference",
    "Reference",
    "WheelMember",
    "check_gguf",
    "default_store",
    "parse_reference",
    "read_header",
]
