"""Loading models, and those that can't be loaded."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from legato.engine.library import build_info
from legato.engine.model import Model, ModelLoadError
from legato.errors import LegatoError


def test_what_the_file_says_of_the_model(model: Model, model_path: Path) -> None:
    assert model.path == model_path
    assert model.context_length == 8192
    assert model.layers == 30
    assert model.parameters == 134_515_008
    assert 0 < model.size_bytes < model_path.stat().st_size
    assert "Q4_1" in model.description
    assert model.chat_template is not None
    assert "<|im_start|>" in model.chat_template
    assert model.can_generate


def test_metadata(model: Model) -> None:
    assert model.metadata("general.architecture") == "llama"
    assert model.metadata("llama.block_count") == "30"
    assert model.metadata("no.such.key") is None


def test_the_size_of_kv_state(model: Model) -> None:
    # 30 layers of 3 key-value heads of 64 numbers.
    assert model.kv_numbers_k == model.kv_numbers_v == 30 * 3 * 64


def test_a_vocabulary_alone_reads_text_like_the_whole_model(model: Model, model_path: Path) -> None:
    alone = Model(model_path, vocabulary_only=True)
    text = "<|im_start|>user\nHello 🦔<|im_end|>"
    tokens = [m.vocabulary.tokenize(text, add_bos=True, parse_special=True).tolist() for m in (alone, model)]
    assert tokens[0] == tokens[1]
    assert alone.vocabulary.size == model.vocabulary.size == 49152
    assert alone.chat_template == model.chat_template
    alone.close()


def test_progress_goes_from_nothing_to_all(model_path: Path) -> None:
    shares: list[float] = []
    Model(model_path, on_progress=shares.append).close()
    assert shares == sorted(shares)
    assert shares[0] >= 0
    assert shares[-1] == 1


def test_a_model_can_be_closed_twice(model_path: Path) -> None:
    model = Model(model_path, vocabulary_only=True)
    model.close()
    model.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param(lambda data: b"", "failed to read magic", id="empty"),
        pytest.param(lambda data: b"No model at all. " * 100, "invalid magic", id="no GGUF"),
        pytest.param(lambda data: data[:1000], "failed to read", id="cut in its head"),
        pytest.param(lambda data: data[:-1_000_000], "corrupted or incomplete", id="cut in its tensors"),
    ],
)
def test_a_file_that_cant_be_loaded_is_refused_with_the_librarys_reason(
    model_path: Path, tmp_path: Path, content: Callable[[bytes], bytes] | None, reason: str
) -> None:
    path = tmp_path / "wrong.gguf"
    if content is not None:
        path.write_bytes(content(model_path.read_bytes()))
    with pytest.raises(ModelLoadError, match=rf"^wrong\.gguf could not be loaded: .*{reason}.*\.$"):
        Model(path)


def test_the_reason_is_that_of_the_latest_failure(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"missing\.gguf"):
        Model(tmp_path / "missing.gguf")
    (tmp_path / "other.gguf").write_bytes(b"No model at all.")
    with pytest.raises(ModelLoadError) as caught:
        Model(tmp_path / "other.gguf")
    assert "missing" not in str(caught.value)
    assert "No such file" not in str(caught.value)


def test_load_errors_are_ones_that_people_can_read() -> None:
    assert issubclass(ModelLoadError, LegatoError)


# The library's log


USE_A_MODEL = """
import sys
from pathlib import Path
import numpy as np
from legato.engine.batch import Batch
from legato.engine.context import Context, ContextSettings
from legato.engine.model import Model
model = Model(Path(sys.argv[1]))
context = Context(model, ContextSettings(1, 256, 32, 1, 1))
batch = Batch(32)
batch.add(0, model.vocabulary.tokenize("Hello", add_bos=True, parse_special=True), 0, want_logits=True)
context.evaluate(batch)
context.close()
model.close()
"""


def test_nothing_is_printed_at_pythons_default_level(model_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", USE_A_MODEL, str(model_path)], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_the_library_prints_nothing_past_pythons_logging(
    model_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Model(model_path).close()
    with pytest.raises(ModelLoadError):
        Model(tmp_path / "missing.gguf")
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_the_librarys_messages_are_there_for_those_who_want_them(
    model_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "legato.llama_cpp"):
        Model(model_path, vocabulary_only=True).close()
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert any("general.architecture" in record.message for record in caplog.records)


def test_the_librarys_errors_are_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "legato.llama_cpp"), pytest.raises(ModelLoadError):
        Model(tmp_path / "missing.gguf")
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_the_build_says_what_it_is() -> None:
    info = build_info()
    assert info.version == version("llama-cpp-python")
    assert info.features
    assert all(name and value for name, value in info.features.items())
    assert info.can_map_files
