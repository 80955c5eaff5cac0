"""A cheap look at a GGUF file before it is handed on: is it one, is it whole, and what is in it."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from legato.errors import LegatoError
from legato.models import lookalike
from legato.models.disk import no_such_file, unreadable
from legato.models.ggml_types import FILE_TYPES, tensor_bytes
from legato.models.gguf_reader import ARRAY, STRING, GgufReader

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_DEFAULT_ALIGNMENT_BYTES: Final = 32
_MOST_DIMENSIONS: Final = 4
# A handful of numbers is wanted from a header; a hostile one could repeat them under ever new names.
_MOST_NUMBERS: Final = 256
_READ_AHEAD_BYTES: Final = 1 << 20

# The smallest possible metadata entry (empty key, type, one byte) and tensor entry (empty name, no dimensions, type,
# offset), in bytes: they bound the counts that a header may claim.
_SMALLEST_ENTRY_BYTES: Final = 8 + 4 + 1
_SMALLEST_TENSOR_BYTES: Final = 8 + 4 + 4 + 8

_ARCHITECTURE_KEY: Final = "general.architecture"
_TEMPLATE_KEY: Final = "tokenizer.chat_template"
_FILE_TYPE_KEY: Final = "general.file_type"
_ALIGNMENT_KEY: Final = "general.alignment"
# It stands behind the architecture's name, which may come later in the file than the number does.
_CONTEXT_ENDING: Final = ".context_length"


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says about itself. None stands for what it does not say."""

    architecture: str | None
    """The model family as llama.cpp names it."""
    file_type_name: str | None
    """The quantization as people name it, like Q4_K_M."""
    context_length: int | None
    """Positions it was trained for."""
    has_chat_template: bool
    """Whether it brings a chat template."""
    required_bytes: int
    """The least size of a whole file with this header, in bytes."""


def check_gguf(path: Path) -> GgufHeader:
    """Make sure that a file is a whole GGUF file, and return its header.

    Raises:
        LegatoError: It is missing, unreadable, something else, or cut off; the text says which.
    """
    try:
        # Looked at before it is opened: opening a pipe would wait for its writer.
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise LegatoError(f"{path} is {kind}; give the path of a GGUF file.")
        with path.open("rb", buffering=_READ_AHEAD_BYTES) as file:
            _require_magic(file, path, status.st_size)
            header = _parse(GgufReader(file, path, status.st_size), path)
    except FileNotFoundError:
        raise no_such_file(path) from None
    except OSError as error:
        raise unreadable(path, error) from error
    if status.st_size < header.required_bytes:
        raise LegatoError(
            f"{path} is cut off: it has {status.st_size} of at least {header.required_bytes} bytes; "
            "remove it and pull it again."
        )
    return header


def _require_magic(file: BinaryIO, path: Path, size_bytes: int) -> None:
    head = file.read(lookalike.HEAD_BYTES)
    if not head.startswith(_MAGIC):
        raise LegatoError(f"{path} is not a GGUF file; it is {lookalike.describe(path, head, size_bytes)}.")
    file.seek(len(_MAGIC))


def _parse(reader: GgufReader, path: Path) -> GgufHeader:
    _require_version(reader.u32(), path)
    tensor_count = reader.count(_SMALLEST_TENSOR_BYTES)
    entry_count = reader.count(_SMALLEST_ENTRY_BYTES)
    reader.visit_entries(entry_count)
    architecture = None
    numbers: dict[str, int] = {}
    has_chat_template = False
    for _ in range(entry_count):
        key = reader.name()
        kind = reader.u32()
        has_chat_template |= key == _TEMPLATE_KEY
        is_number = key in (_FILE_TYPE_KEY, _ALIGNMENT_KEY) or key.endswith(_CONTEXT_ENDING)
        if kind == STRING and key == _ARCHITECTURE_KEY:
            architecture = reader.name()
        elif kind in (STRING, ARRAY) or not is_number or len(numbers) >= _MOST_NUMBERS:
            reader.skip_value(kind)
        # A truth value is an int to Python, but no count.
        elif type(number := reader.scalar(kind)) is int and number >= 0:
            numbers[key] = number
    alignment = numbers.get(_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT_BYTES)
    if alignment < 1 or alignment & (alignment - 1):
        raise reader.malformed(f"the alignment {alignment}, which is no power of two")
    return GgufHeader(
        architecture=architecture,
        file_type_name=FILE_TYPES.get(numbers.get(_FILE_TYPE_KEY, -1)),
        context_length=numbers.get(f"{architecture}{_CONTEXT_ENDING}"),
        has_chat_template=has_chat_template,
        required_bytes=_required_bytes(reader, tensor_count, alignment),
    )


def _require_version(version: int, path: Path) -> None:
    if version in _VERSIONS:
        return
    # Version 3 written by a big-endian machine reads as 3 << 24 here.
    if version and version & 0xFFFF == 0:
        raise LegatoError(f"{path} is a big-endian GGUF file; get the little-endian one, which is the usual kind.")
    if version < min(_VERSIONS):
        raise LegatoError(
            f"{path} is of GGUF version {version}, which is no longer read; get a newer copy of the model."
        )
    raise LegatoError(f"{path} is of GGUF version {version}; this Legato reads versions 2 and 3.")


def _required_bytes(reader: GgufReader, tensor_count: int, alignment: int) -> int:
    """Read the table of tensors, and say where the last of them ends, in bytes from the beginning of the file."""
    reader.visit_entries(tensor_count)
    end_of_data = 0
    for _ in range(tensor_count):
        reader.skip_value(STRING)
        dimensions = reader.u32()
        if dimensions > _MOST_DIMENSIONS:
            raise reader.malformed(f"a tensor of {dimensions} dimensions")
        shape = [reader.u64() for _ in range(dimensions)]
        kind = reader.u32()
        end_of_data = max(end_of_data, reader.u64() + tensor_bytes(kind, shape))
    if not tensor_count:
        return reader.position
    start_of_data = -(-reader.position // alignment) * alignment
    return start_of_data + end_of_data
