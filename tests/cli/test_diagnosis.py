"""What `legato doctor` finds about a machine and the library built for it."""

from __future__ import annotations

from dataclasses import replace

from legato.cli.diagnosis import machine_findings
from legato.engine.library import build_info


def test_a_library_with_the_kernels_that_crash_is_found_and_built_anew_without_them() -> None:
    build = build_info()
    with_amx = replace(build, features=build.features | {"AMX_INT8": "1"})
    [finding] = [finding for finding in machine_findings(with_amx) if "AMX" in finding.what]
    assert "models may not load" in finding.what
    assert "CXXFLAGS=-U__AMX_INT8__ pip install --force-reinstall --no-cache-dir" in finding.remedy
    assert finding.remedy.endswith(f"llama-cpp-python=={build.version}")


def test_the_library_that_set_up_builds_is_without_them() -> None:
    assert "AMX_INT8" not in build_info().features


def test_a_library_without_what_the_cpu_has_is_built_for_it_without_them_too() -> None:
    slow = replace(build_info(), features={})
    remedies = [finding.remedy for finding in machine_findings(slow) if "GGML_NATIVE" in finding.remedy]
    assert all("-U__AMX_INT8__" in remedy for remedy in remedies)
