"""A small GGUF writer of the tests' own, so that reader and writer cannot share a mistake."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
_LAYOUTS = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q"}
TYPE_F32, TYPE_Q4_0 = 0, 2


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind: int, content: Any) -> bytes:
    if kind == STRING:
        return string(content)
    return struct.pack(_LAYOUTS[kind], content)


def entry(key: str, kind: int, content: Any) -> bytes:
    return string(key) + struct.pack("<I", kind) + value(kind, content)


def array_entry(key: str, kind: int, contents: list[Any]) -> bytes:
    items = b"".join(value(kind, content) for content in contents)
    return string(key) + struct.pack("<IIQ", ARRAY, kind, len(contents)) + items


@dataclass
class Tensor:
    name: str
    shape: tuple[int, ...]
    kind: int
    data: bytes


@dataclass
class Gguf:
    """A file to be; `build` makes its bytes."""

    entries: list[bytes] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    version: int = 3
    alignment: int = 32

    def build(self) -> bytes:
        table, data = b"", b""
        for tensor in self.tensors:
            data += bytes(-len(data) % self.alignment)
            table += string(tensor.name) + struct.pack("<I", len(tensor.shape))
            table += b"".join(struct.pack("<Q", extent) for extent in tensor.shape)
            table += struct.pack("<IQ", tensor.kind, len(data))
            data += tensor.data
        head = b"GGUF" + struct.pack("<IQQ", self.version, len(self.tensors), len(self.entries))
        head += b"".join(self.entries) + table
        return head + bytes(-len(head) % self.alignment if data else 0) + data


def tiny_gguf(name: str = "tiny", payload_floats: int = 64) -> bytes:
    """A whole GGUF file of a made-up llama model."""
    return Gguf(
        entries=[
            # Before the architecture, on purpose: the order of keys is free.
            entry("llama.context_length", U32, 2048),
            entry("general.architecture", STRING, "llama"),
            entry("general.name", STRING, name),
            entry("general.file_type", U32, 15),
            entry("llama.block_count", U32, 2),
            entry("llama.embedding_length", U32, 32),
            entry("llama.attention.head_count", U32, 4),
            array_entry("llama.attention.head_count_kv", I32, [1, 2]),
            entry("llama.attention.key_length", U32, 8),
            entry("llama.rope.freq_base", F32, 10000.0),
            entry("llama.use_something", BOOL, True),
            array_entry("tokenizer.ggml.tokens", STRING, [f"token {number}" for number in range(300)]),
            array_entry("tokenizer.ggml.scores", F32, [0.5] * 300),
            entry("tokenizer.chat_template", STRING, "{{ messages }}"),
        ],
        tensors=[
            Tensor("blk.0.weight", (32, 2), TYPE_Q4_0, b"q" * 36),
            Tensor(
                "token_embd.weight",
                (payload_floats,),
                TYPE_F32,
                struct.pack(f"<{payload_floats}f", *range(payload_floats)),
            ),
        ],
    ).build()
