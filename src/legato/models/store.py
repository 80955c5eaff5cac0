"""The models on this computer, and the way new ones come in."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import platformdirs
from filelock import FileLock, Timeout

from legato.errors import LegatoError
from legato.models.catalogue import CATALOGUE
from legato.models.choice import choose, file_stem, split_parts
from legato.models.disk import disk_failures
from legato.models.gguf import check_gguf
from legato.models.hub_cache import HubCache
from legato.models.reference import CatalogueReference, HubReference, PathReference, parse_reference
from legato.models.wheels import pull_wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from legato.models.catalogue import CatalogueEntry
    from legato.models.reference import Reference

Source: TypeAlias = Literal["catalogue", "hub", "file"]
Progress: TypeAlias = "Callable[[str], None]"

_FOLDER_VARIABLE: Final = "LEGATO_MODELS_DIR"
...
