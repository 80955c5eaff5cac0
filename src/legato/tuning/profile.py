"""What was measured on this machine, remembered: the choice of `legato tune`, and what library calls cost."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import platformdirs
from filelock import FileLock, Timeout

from legato.errors import LegatoError
from legato.scheduling.costs import Coefficients
from legato.tuning.setup import EngineSetup
from legato.worker.sizing import usable_cpus

PATH_VARIABLE: Final = "LEGATO_TUNING"
"""Environment variable that names another file, or is `off`."""
MOST_RECORDS: Final = 200
"""Records of each kind that are kept, the newest ones."""
LOCK_WAIT_S: Final = 5.0


class Profile(EngineSetup, frozen=True):
    """The settings that suit a model on this machine."""

    joined_calls: bool
    """One library call a step for its decodes and chunks."""
    gap_target_s: float
    """The gap target that it was chosen for."""
    model_name: str
    advised_weights: str | None
    """A weight type that reads prompts faster, None if the model's own is as good as any that was measured."""
    tuned_at: float
    """When, in seconds since 1970."""


class CostSettings(EngineSetup, frozen=True):
    """The engine settings that change what a call costs.

    A server looks its costs up before it starts a worker, so what its settings leave open stands here as the worker is
    going to choose, and what the worker learns is saved under the same settings again.
    """

    gpu_layers: int
    joined_calls: bool


def cost_settings(profile: Profile, gpu_layers: int) -> CostSettings:
    """The settings that costs measured with a profile hold for, and with so many layers on a GPU, -1 for all."""
    setup = {name: getattr(profile, name) for name in EngineSetup.__struct_fields__}
    return CostSettings(**setup, gpu_layers=gpu_layers, joined_calls=profile.joined_calls)


class _Key(msgspec.Struct, frozen=True):
    """A model file on a machine: what was measured holds for no other."""

    file_name: str
    size_bytes: int
    mtime_ns: int
    cpu: str
    cpus: int
    library: str


class _ProfileRecord(msgspec.Struct, frozen=True):
    key: _Key
    profile: Profile


class _CostRecord(msgspec.Struct, frozen=True):
    key: _Key
    settings: CostSettings
    costs: Coefficients
    saved_at: float


class _File(msgspec.Struct):
    """The whole file; of each kind of record the newest stand last."""

    profiles: list[_ProfileRecord] = []
    costs: list[_CostRecord] = []


class ProfileStore:
    """Remembers profiles and costs in a JSON file that only its owner reads and writes.

    A file that cannot be read or is damaged counts as empty, and is replaced by the next that is saved.

    Args:
        path: The file, which need not exist; None remembers nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def find_profile(self, model_path: Path) -> Profile | None:
        """The settings that suit a model file, None if it was not tuned on this machine since it came."""
        key = _key(model_path)
        return next((r.profile for r in reversed(self._read().profiles) if r.key == key), None)

    def save_profile(self, model_path: Path, profile: Profile) -> None:
        """Remember the settings that suit a model file.

        Raises:
            LegatoError: The file cannot be written.
        """
        if (key := _key(model_path)) is None:
            return
        with self._changing() as file:
            others = [record for record in file.profiles if record.key != key]
            file.profiles = [*others, _ProfileRecord(key, profile)]

    def find_costs(self, model_path: Path, settings: CostSettings) -> Coefficients | None:
        """What calls cost with these settings, None if that is not known."""
        key = _key(model_path)
        records = reversed(self._read().costs)
        return next((r.costs for r in records if r.key == key and r.settings == settings), None)

    def save_costs(self, model_path: Path, settings: CostSettings, costs: Coefficients) -> None:
        """Remember what calls cost with these settings.

        Raises:
            LegatoError: The file cannot be written.
        """
        if (key := _key(model_path)) is None:
            return
        with self._changing() as file:
            others = [record for record in file.costs if (record.key, record.settings) != (key, settings)]
            file.costs = [*others, _CostRecord(key, settings, costs, time.time())]

    def _read(self) -> _File:
        if self.path is None:
            return _File()
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_File)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return _File()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_File]:
        """What the file holds, while no other process changes it; written back at the end."""
        if self.path is None:
            yield _File()
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.with_name(self.path.name + ".lock"), timeout=LOCK_WAIT_S):
                file = self._read()
                yield file
                _replace(self.path, _File(file.profiles[-MOST_RECORDS:], file.costs[-MOST_RECORDS:]))
        except Timeout:
            raise LegatoError(f"Another process holds {self.path}; end it, or set {PATH_VARIABLE}=off.") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise LegatoError(
                f"{self.path} cannot be written ({reason}); mend that, or set {PATH_VARIABLE} to another file or off."
            ) from error


def default_profiles() -> ProfileStore:
    """The store that LEGATO_TUNING names, or that of the user's state folder; `off` remembers nothing."""
    named = os.environ.get(PATH_VARIABLE)
    if named and named.lower() == "off":
        return ProfileStore(None)
    return ProfileStore(Path(named).expanduser() if named else platformdirs.user_state_path("legato") / "tuning.json")


def _replace(path: Path, file: _File) -> None:
    # A temporary file of one's own is readable by its owner alone; renaming it replaces the old one as a whole.
    descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as temporary:
            temporary.write(msgspec.json.format(msgspec.json.encode(file), indent=1))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _key(model_path: Path) -> _Key | None:
    """The key of a model file, None if it is not there."""
    try:
        state = model_path.stat()
    except OSError:
        return None
    return _Key(
        file_name=model_path.name,
        size_bytes=state.st_size,
        mtime_ns=state.st_mtime_ns,
        cpu=_cpu_name(),
        cpus=usable_cpus(),
        library=importlib.metadata.version("llama-cpp-python"),
    )


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
