"""What a file is when it is no GGUF file: the mistakes that people make most."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final

# How much of a file's beginning `describe` wants to see, in bytes.
HEAD_BYTES: Final = 512

_PICKLE: Final = "a PyTorch pickle (convert it to GGUF first)"
_BEGINNINGS: Final = (
    (rb"\Z", "an empty file"),
    (
        rb"version https://git-lfs",
        "a git-lfs pointer, which stands for the model but does not hold it (`git lfs pull` fetches it)",
    ),
    (rb"\x80[\x02-\x05]", _PICKLE),
    (rb"\s*<(?i:!doctype html|html|head)", "a web page, often what a download behind a login brings"),
    (rb"lmgg|fmgg|tjgg|algg", "a GGML file from before GGUF (get a newer copy of the model)"),
)


def describe(path: Path, head: bytes, size_bytes: int) -> str:
    """Say what a file looks like, as a noun phrase that follows "it is".

    Args:
        path: The file; only a zip archive's directory is read from it.
        head: Its first bytes, up to HEAD_BYTES.
        size_bytes: Its size.
    """
    if head.startswith(b"PK\x03\x04"):
        return _PICKLE if _is_pytorch_archive(path) else "a zip archive"
    for beginning, words in _BEGINNINGS:
        if re.match(beginning, head):
            return words
    # Its header's length, in 8 bytes, and the header, which is JSON.
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size_bytes - 8:
        return "a safetensors file (convert it to GGUF first)"
    return "something else: it does not begin with the letters GGUF"


def _is_pytorch_archive(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False
