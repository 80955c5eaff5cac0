"""What needs no model loads no library for one: plain data, policy, the wire and the dialects import in no time."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

LIGHT = ("client", "core", "scheduling", "sinks", "telemetry", "wire")
"""Rooms of which no module may need the library."""


def modules_of(package: str) -> list[str]:
    """A package and all that is in it, found without importing any of it but the packages above."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    inside = pkgutil.iter_modules(spec.submodule_search_locations, f"{package}.")
    return [package, *(name for one in inside for name in (modules_of(one.name) if one.ispkg else [one.name]))]


def dialects() -> list[str]:
    """The folders in the server: one for each API."""
    spec = find_spec("legato.server")
    assert spec is not None
    inside = pkgutil.iter_modules(spec.submodule_search_locations, "legato.server.")
    return [one.name for one in inside if one.ispkg]


@pytest.mark.parametrize("package", [*(f"legato.{room}" for room in LIGHT), *dialects()])
def test_no_module_brings_the_library_in(package: str) -> None:
    modules = modules_of(package)
    assert len(modules) > 1
    # Each in a fork of one fresh interpreter: its own modules alone, at the price of one start.
    check = """
import importlib, os, sys
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        importlib.import_module(name)
        if "llama_cpp" in sys.modules:
            print(name, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""
    found = subprocess.run([sys.executable, "-c", check, *modules], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == []
