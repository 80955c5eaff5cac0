from __future__ import annotations

from pathlib import Path

import pytest

from legato.errors import LegatoError
from legato.models.catalogue import DEFAULT_MODEL
from legato.models.reference import CatalogueReference, HubReference, PathReference, parse_reference


def test_the_default_model_is_in_the_catalogue() -> None:
    assert parse_reference(DEFAULT_MODEL) == CatalogueReference("smollm2")


@pytest.mark.parametrize("text", ["models/llama.gguf", "llama.gguf", "LLAMA.GGUF", "./smollm2", "/srv/llama"])
def test_a_path_is_told_by_its_separator_or_its_ending(text: str) -> None:
    assert parse_reference(text) == PathReference(Path(text))


def test_a_plain_name_that_is_a_file_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama").touch()
    assert parse_reference("llama") == PathReference(Path("llama"))


def test_a_file_cannot_take_the_place_of_a_catalogue_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").touch()
    assert parse_reference("smollm2") == CatalogueReference("smollm2")


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert parse_reference("~/llama.gguf") == PathReference(Path("/home/ada/llama.gguf"))


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("hf:ada/llama-GGUF", HubReference("ada/llama-GGUF")),
        ("hf:ada/llama-GGUF:Q4_K_M", HubReference("ada/llama-GGUF", "Q4_K_M")),
        ("hf:ada/llama-GGUF:sub/llama.gguf", HubReference("ada/llama-GGUF", "sub/llama.gguf")),
        ("hf:ada/llama-GGUF:", HubReference("ada/llama-GGUF")),
    ],
)
def test_hub_references(text: str, reference: HubReference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize(
    "text",
    [
        f"hf:ada/{'x' * 97}",
        "hf:ada/x.git",
        "hf:",
        "hf:ada",
        "hf:ada/llama/more",
        "hf:a--b/c",
        "hf:../..",
        "hf:ada/..",
        "hf://ada/llama",
        "hf:ada/.x",
    ],
)
def test_a_malformed_repository_is_refused(text: str) -> None:
    with pytest.raises(LegatoError, match="write hf:owner/repo"):
        parse_reference(text)


@pytest.mark.parametrize("pick", ["../secret.gguf", "/etc/passwd", "a\\b.gguf"])
def test_a_file_outside_the_repository_is_refused(pick: str) -> None:
    with pytest.raises(LegatoError, match="inside the repository"):
        parse_reference(f"hf:ada/llama:{pick}")


def test_a_web_address_is_told_the_short_form() -> None:
    with pytest.raises(LegatoError, match="hf:owner/repo"):
        parse_reference("https://example.org/ada/llama")


def test_an_unknown_name_lists_what_is_known_and_the_other_forms() -> None:
    with pytest.raises(LegatoError) as raised:
        parse_reference("smolm2")
    text = str(raised.value)
    assert "did you mean smollm2?" in text
    assert "smollm2, gemma3-270m" in text
    assert "path to a GGUF file" in text
    assert "hf:owner/repo" in text


def test_names_that_no_file_can_have_are_only_unknown() -> None:
    with pytest.raises(LegatoError, match="There is no model called"):
        parse_reference("x" * 5000)
    assert parse_reference("~nobody-of-that-name/x.gguf") == PathReference(Path("~nobody-of-that-name/x.gguf"))


@pytest.mark.parametrize("text", ["", "   ", "gpt-5"])
def test_a_name_like_no_other_gets_no_guess(text: str) -> None:
    with pytest.raises(LegatoError, match="There is no model called") as raised:
        parse_reference(text)
    assert "did you mean" not in str(raised.value)


@pytest.mark.parametrize("text", ["smollm2", "hf:ada/llama", "hf:ada/llama:Q8_0", "models/llama.gguf"])
def test_a_reference_prints_as_what_was_typed(text: str) -> None:
    assert str(parse_reference(text)) == text
