"""What weight types lose, on the real model."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.engine.context import EngineError
from legato.engine.quantize import WEIGHT_TYPES, convert, converted_bytes, weight_type
from legato.errors import LegatoError
from legato.tuning.quality import weight_loss


def test_a_coarser_type_loses_more_and_the_same_file_nothing(model_path: Path, tmp_path: Path) -> None:
    same = weight_loss(model_path, model_path, threads=1)
    assert same.kl_divergence == pytest.approx(0, abs=1e-6)
    assert same.perplexity_ratio == pytest.approx(1, abs=1e-6)
    losses = {}
    for weights in ("Q8_0", "Q4_0"):
        target = tmp_path / f"{weights}.gguf"
        convert(model_path, target, weights)
        losses[weights] = weight_loss(model_path, target, threads=1)
        assert target.stat().st_size < converted_bytes(model_path.stat().st_size, "Q4_1", weights)
    assert losses["Q4_0"].kl_divergence > losses["Q8_0"].kl_divergence > 0
    assert losses["Q4_0"].tokens == same.tokens > 200
    assert {path.name for path in tmp_path.iterdir()} == {"Q8_0.gguf", "Q4_0.gguf"}


def test_a_file_that_is_no_model_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(EngineError, match=r"could not convert text\.gguf to Q8_0"):
        convert(tmp_path / "text.gguf", tmp_path / "made.gguf", "Q8_0")
    assert [path.name for path in tmp_path.iterdir()] == ["text.gguf"]


def test_a_place_that_cannot_be_written_is_refused(model_path: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="must not be written"):
        convert(model_path, tmp_path / "none" / "made.gguf", "Q8_0")


def test_types_are_known_in_any_spelling() -> None:
    assert weight_type("q4_k_m") == weight_type(" Q4-K-M ") == "Q4_K_M"
    with pytest.raises(LegatoError, match="Q9_9") as raised:
        weight_type("Q9_9")
    assert all(name in str(raised.value) for name in WEIGHT_TYPES)
