"""What is remembered between runs, and what is forgotten."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from legato.errors import LegatoError
from legato.scheduling.costs import Coefficients
from legato.tuning import profile as profile_module
from legato.tuning.profile import CostSettings, Profile, ProfileStore, cost_settings, default_profiles

PROFILE = Profile(
    flash_attention="off",
    kv_type_k="f16",
    kv_type_v="f16",
    threads=2,
    threads_prefill=3,
    batch_tokens=128,
    joined_calls=False,
    gap_target_s=0.1,
    model_name="tiny",
    advised_weights="Q8_0",
    tuned_at=1.0,
)
COSTS = Coefficients(0.004, 0.001, 1e-6, 0.002, 0.003, 1e-7, 4e-7, 64)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "state" / "tuning.json")


def settings(**changes: object) -> CostSettings:
    return msgspec.structs.replace(cost_settings(PROFILE, -1), **changes)


def test_what_was_saved_is_found(store: ProfileStore, model: Path) -> None:
    assert store.find_profile(model) is None
    assert store.find_costs(model, settings()) is None
    store.save_profile(model, PROFILE)
    store.save_costs(model, settings(), COSTS)
    assert store.find_profile(model) == PROFILE
    assert store.find_costs(model, settings()) == COSTS


def test_the_newer_record_wins(store: ProfileStore, model: Path) -> None:
    newer = msgspec.structs.replace(PROFILE, threads=7)
    store.save_profile(model, PROFILE)
    store.save_profile(model, newer)
    assert store.find_profile(model) == newer


@pytest.mark.parametrize(
    "change",
    [{"flash_attention": "on"}, {"kv_type_v": "q8_0"}, {"threads": 1}, {"batch_tokens": 64}, {"joined_calls": True}],
)
def test_costs_hold_only_for_their_settings(store: ProfileStore, model: Path, change: dict[str, object]) -> None:
    store.save_costs(model, settings(), COSTS)
    assert store.find_costs(model, settings(**change)) is None


def test_a_changed_model_file_is_another_model(store: ProfileStore, model: Path) -> None:
    store.save_profile(model, PROFILE)
    os.utime(model, ns=(1, 1))
    assert store.find_profile(model) is None


def test_a_model_that_is_gone_is_a_miss(store: ProfileStore, tmp_path: Path) -> None:
    store.save_profile(tmp_path / "none.gguf", PROFILE)
    assert store.find_profile(tmp_path / "none.gguf") is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"profiles": [{"key": 3}]}', b"\xff\xfe\x00"])
def test_a_damaged_file_is_a_miss_and_is_replaced(store: ProfileStore, model: Path, damage: bytes) -> None:
    assert store.path is not None
    store.save_profile(model, PROFILE)
    store.path.write_bytes(damage)
    assert store.find_profile(model) is None
    assert store.find_costs(model, settings()) is None
    store.save_profile(model, PROFILE)
    assert store.find_profile(model) == PROFILE


def test_only_its_owner_reads_it(store: ProfileStore, model: Path) -> None:
    assert store.path is not None
    store.save_profile(model, PROFILE)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert [path.name for path in store.path.parent.glob("tuning.json?*")] in ([], ["tuning.json.lock"])


def test_the_oldest_records_go(store: ProfileStore, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_module, "MOST_RECORDS", 3)
    for threads in range(1, 6):
        store.save_costs(model, settings(threads=threads), COSTS)
    found = [store.find_costs(model, settings(threads=threads)) is not None for threads in range(1, 6)]
    assert found == [False, False, True, True, True]


def test_off_remembers_nothing(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setenv("LEGATO_TUNING", "off")
    store = default_profiles()
    store.save_profile(model, PROFILE)
    store.save_costs(model, settings(), COSTS)
    assert store.path is None
    assert store.find_profile(model) is None
    assert store.find_costs(model, settings()) is None


def test_the_environment_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LEGATO_TUNING", str(tmp_path / "mine.json"))
    assert default_profiles().path == tmp_path / "mine.json"
    monkeypatch.delenv("LEGATO_TUNING")
    path = default_profiles().path
    assert path is not None
    assert path.parts[-2:] == ("legato", "tuning.json")


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path, model: Path) -> None:
    (tmp_path / "file").touch()
    store = ProfileStore(tmp_path / "file" / "tuning.json")
    assert store.find_profile(model) is None
    with pytest.raises(LegatoError, match=r"cannot be written .* LEGATO_TUNING"):
        store.save_profile(model, PROFILE)
