from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import huggingface_hub.constants
import pytest

from legato.errors import LegatoError

from .gguf_files import tiny_gguf
from .hub_server import COMMIT, NEXT_COMMIT, Repo, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from legato.models import ModelStore

    from .hub_server import FakeHub

REPO = "ada/tiny-GGUF"
FOLDER = "models--ada--tiny-GGUF"
# About one megabyte, so that a download has a middle.
BIG = tiny_gguf("big", payload_floats=250_000)
PARTS = {f"big-Q8_0-0000{number}-of-00003.gguf": tiny_gguf(f"part {number}") for number in (1, 2, 3)}

# A second process that pulls: it prints what it is told and then where the model is.
PULL = """
import sys
from pathlib import Path
from legato.models import ModelStore
model = ModelStore(Path(sys.argv[1])).resolve(sys.argv[2], progress=lambda line: print(line, flush=True))
print("path", model.path, flush=True)
"""


def start_pull(store: ModelStore, reference: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PULL, str(store.root), reference]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def files_under(store: ModelStore) -> list[Path]:
    return [path for path in store.root.rglob("*") if path.is_file() and "locks" not in path.parts]


def partials(store: ModelStore) -> list[Path]:
    return list(store.root.rglob("*.partial"))


def test_a_plain_file_is_pulled_once(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny-Q4_K_M.gguf": BIG, "mmproj-f16.gguf": b"GGUF"})
    lines: list[str] = []
    model = store.resolve(f"hf:{REPO}", progress=lines.append)
    assert model.path.read_bytes() == BIG
    assert model.path == store.root / "hub" / FOLDER / "snapshots" / COMMIT / "tiny-Q4_K_M.gguf"
    assert model.name == f"{REPO}:tiny-Q4_K_M"
    assert model.size_bytes == len(BIG)
    assert model.reference == f"hf:{REPO}:tiny-Q4_K_M.gguf"
    assert model.source == "hub"
    assert len(lines) == 1
    assert "1.0 MB" in lines[0]
    assert (store.root / "hub" / FOLDER / "refs" / "main").read_text() == COMMIT
    assert not partials(store)

    asked = len(hub.requests)
    assert store.resolve(f"hf:{REPO}") == model
    assert store.pull(f"hf:{REPO}:q4_k_m") == model
    assert store.find(model.reference) == model
    assert len(hub.requests) == asked
    assert hub.sent_bytes == len(BIG)


def test_a_git_object_is_pulled_by_its_size(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": tiny_gguf()}, large=False)
    assert store.resolve(f"hf:{REPO}").path.read_bytes() == tiny_gguf()


def test_a_split_file_comes_with_all_its_parts(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({**PARTS, "README.gguf.txt": b""})
    model = store.resolve(f"hf:{REPO}:Q8_0")
    assert model.name == f"{REPO}:big-Q8_0"
    assert model.path.name == "big-Q8_0-00001-of-00003.gguf"
    assert model.size_bytes == sum(map(len, PARTS.values()))
    for name, data in PARTS.items():
        assert (model.path.parent / name).read_bytes() == data
    assert len(hub.downloads) == 3
    assert store.resolve(model.reference) == model


def test_a_split_file_that_lacks_a_part_on_the_hub_is_refused(store: ModelStore, hub: FakeHub) -> None:
    names = list(PARTS)
    hub.repos[REPO] = Repo({names[0]: PARTS[names[0]], names[2]: PARTS[names[2]]})
    with pytest.raises(LegatoError, match=r"lacks big-Q8_0-00002-of-00003\.gguf"):
        store.resolve(f"hf:{REPO}")
    assert hub.downloads == []


def test_a_cut_connection_is_gone_on_with(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    hub.storage.cut_after = [300_000, 400_000]
    model = store.resolve(f"hf:{REPO}")
    assert model.path.read_bytes() == BIG
    first, second, third = hub.downloads
    assert first.range is None
    assert second.range == "bytes=300000-"
    assert third.range == "bytes=700000-"
    assert hub.sent_bytes == len(BIG)


def test_a_pull_that_gave_up_is_gone_on_with_later(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    hub.storage.cut_after = [300_000, 0, 0, 0, 0, 0]
    with pytest.raises(LegatoError, match="cannot be reached"):
        store.resolve(f"hf:{REPO}")
    (partial,) = partials(store)
    assert partial.stat().st_size == 300_000
    assert store.find(f"hf:{REPO}") is None
    assert store.list() == []
    tries = len(hub.downloads)

    assert store.resolve(f"hf:{REPO}").path.read_bytes() == BIG
    assert [request.range for request in hub.downloads[tries:]] == ["bytes=300000-"]
    assert hub.sent_bytes == len(BIG)
    assert not partials(store)


def test_a_server_without_ranges_starts_over(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    hub.storage.cut_after = [300_000]
    hub.storage.ignores_range = True
    assert store.resolve(f"hf:{REPO}").path.read_bytes() == BIG
    assert hub.sent_bytes == len(BIG) + 300_000


def test_a_busy_server_is_asked_again(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    hub.storage.statuses = [503, 429]
    assert store.resolve(f"hf:{REPO}").path.read_bytes() == BIG
    assert len(hub.downloads) == 3


@pytest.mark.parametrize(("status", "tries"), [(503, 5), (418, 1)])
def test_a_server_that_stays_bad_is_given_up(store: ModelStore, hub: FakeHub, status: int, tries: int) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    hub.storage.statuses = [status] * 9
    with pytest.raises(LegatoError, match=f"status {status}"):
        store.resolve(f"hf:{REPO}")
    assert len(hub.downloads) == tries


@pytest.mark.parametrize("tampered", [BIG[:-4] + b"evil", BIG + b"more"], ids=["same size", "longer"])
def test_a_download_that_is_not_what_was_declared_is_removed(store: ModelStore, hub: FakeHub, tampered: bytes) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG}, tampered=tampered)
    # The storage finds contents by the checksum of the true file, and sends the others.
    with pytest.raises(LegatoError, match=r"was damaged.*pull it again"):
        store.resolve(f"hf:{REPO}")
    assert [path for path in files_under(store) if path.suffix != ".TAG"] == []
    assert store.find(f"hf:{REPO}") is None

    hub.repos[REPO].tampered = None
    assert store.resolve(f"hf:{REPO}").path.read_bytes() == BIG


def test_a_file_that_the_disk_cannot_hold_is_refused_before_its_first_byte(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG}, declared_bytes=10**18)
    with pytest.raises(LegatoError, match=r"1000000\.0 TB are needed"):
        store.resolve(f"hf:{REPO}")
    assert hub.downloads == []


def test_a_file_that_only_calls_itself_gguf_is_refused(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": b"<html>"})
    with pytest.raises(LegatoError, match="a web page"):
        store.resolve(f"hf:{REPO}")


def test_an_unknown_quantization_lists_the_choices(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny-Q4_K_M.gguf": BIG, "tiny-Q8_0.gguf": BIG})
    with pytest.raises(LegatoError, match=r"'Q2_K'.*tiny-Q4_K_M\.gguf, tiny-Q8_0\.gguf"):
        store.resolve(f"hf:{REPO}:Q2_K")
    assert hub.downloads == []


def test_a_repository_without_a_model_says_so(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"model.safetensors": b""})
    with pytest.raises(LegatoError, match="no GGUF model"):
        store.resolve(f"hf:{REPO}")


def test_a_repository_that_does_not_exist(store: ModelStore, hub: FakeHub) -> None:
    with pytest.raises(LegatoError, match=f"{hub.endpoint} has no repository ada/none"):
        store.resolve("hf:ada/none")


def test_a_gated_repository_wants_its_terms_accepted(
    store: ModelStore, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG}, gated=True)
    with pytest.raises(LegatoError, match=rf"is gated: accept its terms at {hub.endpoint}/{REPO}.*HF_TOKEN"):
        store.resolve(f"hf:{REPO}")

    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert store.resolve(f"hf:{REPO}").path.read_bytes() == BIG
    # The token is the hub's business, and not that of the storage it redirects to.
    (download,) = hub.downloads[-1:]
    assert download.path.count("/") == 1
    assert download.authorization is None


@pytest.mark.parametrize(
    ("status", "words"), [(403, "check the token in HF_TOKEN"), (500, "try again later"), (410, "answered status 410")]
)
def test_statuses_of_the_hub(store: ModelStore, hub: FakeHub, status: int, words: str) -> None:
    hub.api_status = status
    with pytest.raises(LegatoError, match=words):
        store.resolve(f"hf:{REPO}")


@pytest.mark.parametrize("body", [b"<html>Please log in</html>", b"[]", b"{}", b'{"id": "a/b", "siblings": [{}]}'])
def test_an_answer_of_somebody_else(store: ModelStore, hub: FakeHub, body: bytes) -> None:
    hub.api_body = body
    with pytest.raises(LegatoError, match="does not answer like a Hugging Face hub"):
        store.resolve(f"hf:{REPO}")


def test_a_commit_that_is_none_is_not_believed(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG}, commit="not-a-commit")
    with pytest.raises(LegatoError, match="does not answer like a Hugging Face hub"):
        store.resolve(f"hf:{REPO}")


def test_a_hub_that_does_not_answer(store: ModelStore, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
    hub.silent = True
    with pytest.raises(LegatoError, match="did not answer in time"):
        store.resolve(f"hf:{REPO}")


def test_a_hub_that_cannot_be_reached(store: ModelStore, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    model = store.resolve(f"hf:{REPO}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("HF_ENDPOINT", nobody)
    assert store.resolve(f"hf:{REPO}") == model
    with pytest.raises(LegatoError, match=f"{nobody} cannot be reached"):
        store.resolve("hf:ada/other")


def test_offline_by_choice(store: ModelStore, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    model = store.resolve(f"hf:{REPO}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert store.resolve(f"hf:{REPO}") == model
    with pytest.raises(LegatoError, match="HF_HUB_OFFLINE is set and ada/other is not in the store"):
        store.resolve("hf:ada/other")


def test_an_endpoint_that_is_no_address(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    with pytest.raises(LegatoError, match=r"HF_ENDPOINT is 'hub\.example'; it must begin with https://"):
        store.resolve(f"hf:{REPO}")


def test_force_brings_the_newest_version_and_drops_the_old_one(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny-Q8_0.gguf": BIG, "tiny-Q4_0.gguf": tiny_gguf("q4")})
    old = store.resolve(f"hf:{REPO}:Q8_0")
    other = store.resolve(f"hf:{REPO}:Q4_0")
    newer = tiny_gguf("newer")
    hub.repos[REPO] = Repo({"tiny-Q8_0.gguf": newer}, commit=NEXT_COMMIT)
    assert store.pull(f"hf:{REPO}:Q8_0") == old

    new = store.pull(f"hf:{REPO}:Q8_0", force=True)
    assert new.path.read_bytes() == newer
    assert store.resolve(f"hf:{REPO}:Q8_0") == new
    assert not old.path.exists()
    assert store.list() == [other, new]
    assert len(list((store.root / "hub" / FOLDER / "blobs").iterdir())) == 2


def test_force_replaces_a_file_that_the_disk_spoiled(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    model = store.resolve(f"hf:{REPO}")
    model.path.write_bytes(BIG[:1000])
    with pytest.raises(LegatoError, match="cut off"):
        store.resolve(f"hf:{REPO}")
    assert store.pull(f"hf:{REPO}", force=True).path.read_bytes() == BIG


def test_the_same_contents_under_two_names_are_kept_once(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"a.gguf": BIG, "b.gguf": BIG})
    store.resolve(f"hf:{REPO}:a.gguf")
    kept = store.resolve(f"hf:{REPO}:b.gguf")
    assert len(hub.downloads) == 1
    twin = store.find(f"hf:{REPO}:a.gguf")
    assert twin is not None
    assert store.remove(str(twin.path)) == 0
    assert kept.path.read_bytes() == BIG
    assert store.remove(f"hf:{REPO}:b.gguf") >= len(BIG)


def test_remove_frees_the_file_and_then_the_folder(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny-Q8_0.gguf": BIG, "tiny-Q4_0.gguf": tiny_gguf("q4")})
    store.resolve(f"hf:{REPO}:Q8_0")
    other = store.resolve(f"hf:{REPO}:Q4_0")
    assert store.remove(f"hf:{REPO}:Q8_0") == len(BIG)
    assert store.list() == [other]
    assert store.remove(str(other.path)) >= other.size_bytes
    assert not (store.root / "hub" / FOLDER).exists()
    with pytest.raises(LegatoError, match="is not in the model store"):
        store.remove(f"hf:{REPO}")


def test_remove_frees_what_a_cut_off_pull_left(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    hub.storage.cut_after = [300_000, 0, 0, 0, 0, 0]
    with pytest.raises(LegatoError):
        store.resolve(f"hf:{REPO}")
    assert store.remove(f"hf:{REPO}") == 300_000
    assert files_under(store) == []


def test_two_processes_bring_one_file_by_one_download(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    hub.go_on.clear()
    first = start_pull(store, f"hf:{REPO}")
    wait_for(lambda: bool(hub.downloads))
    second = start_pull(store, f"hf:{REPO}")
    assert second.stdout is not None
    assert "Another process is pulling" in second.stdout.readline()
    with pytest.raises(LegatoError, match="is being pulled by another process"):
        store.remove(f"hf:{REPO}")
    hub.go_on.set()

    outputs = [process.communicate()[0].splitlines()[-1] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert len(hub.downloads) == 1
    assert hub.sent_bytes == len(BIG)
    model = store.find(f"hf:{REPO}")
    assert model is not None
    assert outputs == [f"path {model.path}"] * 2
    assert model.path.read_bytes() == BIG


def test_a_killed_pull_is_gone_on_with(store: ModelStore, hub: FakeHub) -> None:
    hub.repos[REPO] = Repo({"tiny.gguf": BIG})
    hub.go_on.clear()
    process = start_pull(store, f"hf:{REPO}")
    half = len(BIG) // 2
    # A process that is killed takes at most the last write's buffer with it.
    wait_for(lambda: sum(path.stat().st_size for path in partials(store)) > half - 64 * 1024)
    process.kill()
    process.communicate()
    (partial,) = partials(store)
    kept_bytes = partial.stat().st_size
    hub.go_on.set()

    assert store.resolve(f"hf:{REPO}").path.read_bytes() == BIG
    assert hub.downloads[-1].range == f"bytes={kept_bytes}-"
    assert hub.downloads[-1].sent_bytes == len(BIG) - kept_bytes
