"""The native library itself: start it once, send its log to Python logging, say what it was built with."""

from __future__ import annotations

import ctypes
import functools
import logging
from collections import deque
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from llama_cpp import llama_cpp as lib

logger = logging.getLogger("legato.llama_cpp")

# ggml's levels are debug, info, warning, error. Each is logged one lower, for what the library calls an error is often
# recovered from, and what it calls information is hundreds of lines a model; its debugging is for its own developers.
_LEVELS = {2: logging.DEBUG, 3: logging.INFO, 4: logging.WARNING}
_GGML_DEBUG = 1
_GGML_ERROR = 4
_GGML_CONTINUED = 5


class LibraryLog:
    """Receives the library's log lines, and remembers the latest errors so that a failure can be explained."""

    def __init__(self) -> None:
        self.errors: deque[str] = deque(maxlen=8)
        """The latest lines that the library logged as errors, oldest first."""
        self._level = 1
        # The library keeps the bare pointer: the object must live as long as the process.
        self._callback = lib.llama_log_callback(self._receive)
        lib.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _receive(self, level: int, text: bytes, _user_data: Any) -> None:
        if level != _GGML_CONTINUED:
            self._level = level
        if self._level == _GGML_DEBUG:
            return
        line = text.decode("utf-8", "replace").strip()
        if not line or line.strip(".") == "":
            return
        if self._level == _GGML_ERROR:
            self.errors.append(line)
        logger.log(_LEVELS.get(self._level, logging.DEBUG), "%s", line)

    def explain(self, fallback: str) -> str:
        """The library's own reason for what just failed, its latest error lines, or `fallback` if it gave none."""
        lines = [_without_function_name(line) for line in self.errors]
        self.errors.clear()
        reasons = list(dict.fromkeys(lines))
        return "; ".join(reasons[:2]) if reasons else fallback


def _without_function_name(line: str) -> str:
    """Strip the C++ function's name that the library puts before each line."""
    name, separator, rest = line.partition(": ")
    return rest if separator and " " not in name else line


@functools.cache
def start_library() -> LibraryLog:
    """Initialize the library's back ends, once a process, and return the log that listens to it."""
    log = LibraryLog()
    lib.llama_backend_init()
    return log


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What the installed library was built with."""

    version: str
    """Version of the Python package that carries the library."""
    features: dict[str, str]
    """Names and values of the features compiled in, such as `AVX512` or `LLAMAFILE`."""
    can_offload: bool
    """True if the build can run layers on a GPU."""
    can_map_files: bool
    """True if a model file can be mapped into memory instead of being read."""


def build_info() -> BuildInfo:
    """Ask the library what it was built with."""
    start_library()
    text = lib.llama_print_system_info().decode("utf-8", "replace")
    pairs = (part.partition("=") for part in text.replace("CPU :", "").split("|") if "=" in part)
    return BuildInfo(
        version=version("llama-cpp-python"),
        features={name.strip(): value.strip() for name, _, value in pairs},
        can_offload=bool(lib.llama_supports_gpu_offload()),
        can_map_files=bool(lib.llama_supports_mmap()),
    )
