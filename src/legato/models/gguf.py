"""A cheap look at a GGUF file before it is handed on: is it one, is it whole, and what is in it."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from legato.errors import LegatoError
from legato.models import lookalike
from legato.models.ggml_types import FILE_TYPES, tensor_bytes
from legato.models.gguf_reader import ARRAY, STRING, GgufReader, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import BinaryIO

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_DEFAULT_ALIGNMENT_BYTES: Final = 32
_MOST_DIMENSIONS: Final = 4
# Head counts may differ by layer and are arrays then; no model has more layers than this.
_MOST_LAYERS: Final = 4096
# A handful of numbers is wanted from a header; a hostile one could repeat them under ever new names.
_MOST_NUMBERS: Final = 256
_READ_AHEAD_BYTES: Final = 1 << 20

# The smallest possible metadata entry (empty key, type, one byte) and tensor entry (empty name, no dimensions, type,
# offset), in bytes: they bound the counts that a header may claim.
_SMALLEST_ENTRY_BYTES: Final = 8 + 4 + 1
_SMALLEST_TENSOR_BYTES: Final = 8 + 4 + 4 + 8

_TEXT_KEYS: Final = frozenset({"general.architecture", "general.name"})
_NUMBER_KEYS: Final = frozenset({"general.file_type", "general.alignment", "split.count"})
_TEMPLATE_KEY: Final = "tokenizer.chat_template"
# These stand behind the architecture's name, which may come later in the file than they do.
_ARCHITECTURE_KEYS: Final = frozenset(
    {
        "context_length",
        "block_count",
        "embedding_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
    }
)


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says about itself. None stands for what it does not say.

    Attributes:
        version: Version of the format.
        architecture: The model family as llama.cpp names it.
        name: The model's own name.
        file_type: llama.cpp's number of the quantization.
        context_length: Positions it was trained for.
        block_count: Layers.
        embedding_length: Width of the residual stream, in elements.
        head_count: Attention heads a layer; the most of any layer where they differ.
        head_count_kv: Key and value heads a layer; the most of any layer where they differ.
        key_length: Width of one head's key, in elements.
        value_length: Width of one head's value, in elements.
        has_chat_template: Whether it brings a chat template.
        split_count: Files that the model is split into; 1 for a whole one.
        tensor_count: Tensors in this file.
        weight_bytes: Bytes that this file's tensors take, those of unknown types left out.
        required_bytes: The least size of a whole file with this header, in bytes.
    """

    version: int
    architecture: str | None
    name: str | None
    file_type: int | None
    context_length: int | None
    block_count: int | None
    embedding_length: int | None
    head_count: int | None
    head_count_kv: int | None
    key_length: int | None
    value_length: int | None
    has_chat_template: bool
    split_count: int
    tensor_count: int
    weight_bytes: int
    required_bytes: int

    @property
    def file_type_name(self) -> str | None:
        """The quantization as people name it, like Q4_K_M."""
        return None if self.file_type is None else FILE_TYPES.get(self.file_type)


@dataclass(frozen=True)
class _Metadata:
    texts: Mapping[str, str]
    numbers: Mapping[str, int]
    has_chat_template: bool


def check_gguf(path: Path) -> GgufHeader:
    """Make sure that a file is a whole GGUF file.

    Args:
        path: The file.

    Returns:
        Its header.

    Raises:
        LegatoError: It is missing, unreadable, something else, or cut off; the text says which.
    """
    header, size_bytes = _read(path)
    if size_bytes < header.required_bytes:
        raise LegatoError(
            f"{path} is cut off: it has {size_bytes} of at least {header.required_bytes} bytes; "
            "remove it and pull it again."
        )
    return header


def read_header(path: Path) -> GgufHeader:
    """Read a GGUF file's header, without a look at whether the tensors behind it are all there.

    Args:
        path: The file.

    Returns:
        What the header says.

    Raises:
        LegatoError: It is missing, unreadable or no GGUF file that llama.cpp reads; the text says which.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[GgufHeader, int]:
    """Read the header and the file's size in bytes."""
    try:
        # Looked at before it is opened: opening a pipe would wait for its writer.
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise LegatoError(f"{path} is {kind}; give the path of a GGUF file.")
        with path.open("rb", buffering=_READ_AHEAD_BYTES) as file:
            _require_magic(file, path, status.st_size)
            return _parse(GgufReader(file, path, status.st_size), path), status.st_size
    except FileNotFoundError:
        raise LegatoError(f"There is no file {path}; check the path for typing errors.") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise LegatoError(f"{path} cannot be read ({reason}); make it readable or give another file.") from error


def _require_magic(file: BinaryIO, path: Path, size_bytes: int) -> None:
    head = file.read(lookalike.HEAD_BYTES)
    if not head.startswith(_MAGIC):
        raise LegatoError(f"{path} is not a GGUF file; it is {lookalike.describe(path, head, size_bytes)}.")
    file.seek(len(_MAGIC))


def _parse(reader: GgufReader, path: Path) -> GgufHeader:
    version = reader.u32()
    _require_version(version, path)
    tensor_count = reader.count(_SMALLEST_TENSOR_BYTES)
    entry_count = reader.count(_SMALLEST_ENTRY_BYTES)
    metadata = _read_metadata(reader, entry_count)
    weight_bytes, required_bytes = _read_tensors(reader, tensor_count, _alignment(reader, metadata))
    architecture = metadata.texts.get("general.architecture")

    def of_architecture(key: str) -> int | None:
        return metadata.numbers.get(f"{architecture}.{key}")

    return GgufHeader(
        version=version,
        architecture=architecture,
        name=metadata.texts.get("general.name"),
        file_type=metadata.numbers.get("general.file_type"),
        context_length=of_architecture("context_length"),
        block_count=of_architecture("block_count"),
        embedding_length=of_architecture("embedding_length"),
        head_count=of_architecture("attention.head_count"),
        head_count_kv=of_architecture("attention.head_count_kv"),
        key_length=of_architecture("attention.key_length"),
        value_length=of_architecture("attention.value_length"),
        has_chat_template=metadata.has_chat_template,
        split_count=max(1, metadata.numbers.get("split.count", 1)),
        tensor_count=tensor_count,
        weight_bytes=weight_bytes,
        required_bytes=required_bytes,
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


def _read_metadata(reader: GgufReader, entry_count: int) -> _Metadata:
    reader.visit_entries(entry_count)
    texts: dict[str, str] = {}
    numbers: dict[str, int] = {}
    has_chat_template = False
    for _ in range(entry_count):
        key = reader.name()
        kind = reader.u32()
        has_chat_template = has_chat_template or key == _TEMPLATE_KEY
        if kind == STRING and key in _TEXT_KEYS:
            texts[key] = reader.name()
        elif kind == STRING or not _is_number_key(key) or len(numbers) >= _MOST_NUMBERS:
            reader.skip_value(kind)
        elif (number := _number(reader, kind)) is not None:
            numbers[key] = number
    return _Metadata(texts, numbers, has_chat_template)


def _is_number_key(key: str) -> bool:
    return key in _NUMBER_KEYS or key.partition(".")[2] in _ARCHITECTURE_KEYS


def _number(reader: GgufReader, kind: int) -> int | None:
    values: list[Scalar] = reader.numbers(_MOST_LAYERS) if kind == ARRAY else [reader.scalar(kind)]
    # A truth value is an int to Python, but no count.
    return max((value for value in values if type(value) is int and value >= 0), default=None)


def _alignment(reader: GgufReader, metadata: _Metadata) -> int:
    alignment = metadata.numbers.get("general.alignment", _DEFAULT_ALIGNMENT_BYTES)
    if alignment < 1 or alignment & (alignment - 1):
        raise reader.malformed(f"the alignment {alignment}, which is no power of two")
    return alignment


def _read_tensors(reader: GgufReader, tensor_count: int, alignment: int) -> tuple[int, int]:
    """Read the tensor table.

    Returns:
        Bytes of all tensors, and where the last one ends, from the beginning of the file.
    """
    reader.visit_entries(tensor_count)
    weight_bytes = 0
    end_of_data = 0
    for _ in range(tensor_count):
        reader.skip_value(STRING)
        dimensions = reader.u32()
        if dimensions > _MOST_DIMENSIONS:
            raise reader.malformed(f"a tensor of {dimensions} dimensions")
        shape = [reader.u64() for _ in range(dimensions)]
        kind = reader.u32()
        offset = reader.u64()
        size_bytes = tensor_bytes(kind, shape) or 0
        weight_bytes += size_bytes
        end_of_data = max(end_of_data, offset + size_bytes)
    if not tensor_count:
        return 0, reader.position
    start_of_data = -(-reader.position // alignment) * alignment
    return weight_bytes, start_of_data + end_of_data
