"""What a file is when it is no GGUF file: the mistakes that people make most."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# How much of a file's beginning `describe` wants to see, in bytes.
HEAD_BYTES: Final = 512

_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_HTML: Final = re.compile(rb"\s*<(!doctype html|html|head)", re.IGNORECASE)
_OLD_GGML_MAGICS: Final = (b"lmgg", b"fmgg", b"tjgg", b"algg")


def describe(path: Path, head: bytes, size_bytes: int) -> str:
    """Say what a file looks like.

    Args:
        path: The file; only a zip archive's directory is read from it.
        head: Its first bytes, up to HEAD_BYTES.
        size_bytes: Its size.

    Returns:
        A noun phrase that follows "it is".
    """
    if not head:
        return "an empty file"
    if head.startswith(b"version https://git-lfs"):
        return "a git-lfs pointer, which stands for the model but does not hold it (`git lfs pull` fetches it)"
    if head.startswith(b"PK\x03\x04"):
        return _describe_zip(path)
    if _PICKLE.match(head):
        return "a PyTorch pickle (convert it to GGUF first)"
    if _HTML.match(head):
        return "a web page, often what a download behind a login brings"
    if _is_safetensors(head, size_bytes):
        return "a safetensors file (convert it to GGUF first)"
    if head.startswith(_OLD_GGML_MAGICS):
        return "a GGML file from before GGUF (get a newer copy of the model)"
    return "something else: it does not begin with the letters GGUF"


def _describe_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            is_pytorch = any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        is_pytorch = False
    return "a PyTorch pickle (convert it to GGUF first)" if is_pytorch else "a zip archive"


def _is_safetensors(head: bytes, size_bytes: int) -> bool:
    header_bytes = int.from_bytes(head[:8], "little")
    return len(head) > 8 and head[8:9] == b"{" and header_bytes <= size_bytes - 8
