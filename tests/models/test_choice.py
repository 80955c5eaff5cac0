from __future__ import annotations

import pytest

from legato.errors import LegatoError
from legato.models.choice import choose, file_stem, gguf_choices, split_parts

NAMES = [
    "README.md",
    "mmproj-model-f16.gguf",
    "imatrix.gguf",
    "model-Q2_K.gguf",
    "model-Q4_K_M.gguf",
    "model-Q4_K_S.gguf",
    "model-Q8_0.gguf",
    "model-IQ4_XS.gguf",
    "BF16/model-BF16-00001-of-00002.gguf",
    "BF16/model-BF16-00002-of-00002.gguf",
]


def pick(names: list[str], wanted: str | None) -> str:
    return choose(gguf_choices(names), wanted, "ada/model").first


@pytest.mark.parametrize(
    ("wanted", "file"),
    [
        (None, "model-Q4_K_M.gguf"),
        ("Q8_0", "model-Q8_0.gguf"),
        ("q4_k_s", "model-Q4_K_S.gguf"),
        ("IQ4_XS", "model-IQ4_XS.gguf"),
        ("model-Q2_K.gguf", "model-Q2_K.gguf"),
        ("model-q2_k", "model-Q2_K.gguf"),
        ("bf16", "BF16/model-BF16-00001-of-00002.gguf"),
        ("BF16/model-BF16-00001-of-00002.gguf", "BF16/model-BF16-00001-of-00002.gguf"),
        ("model-BF16", "BF16/model-BF16-00001-of-00002.gguf"),
    ],
)
def test_a_quantization_or_a_file_is_chosen(wanted: str | None, file: str) -> None:
    assert pick(NAMES, wanted) == file


@pytest.mark.parametrize("wanted", ["Q4_K", "Q4_XS", "Q4_0", "mmproj-model-f16.gguf", "model-BF16-00002-of-00002.gguf"])
def test_what_names_nothing_lists_the_choices(wanted: str) -> None:
    with pytest.raises(LegatoError, match="has nothing that") as raised:
        pick(NAMES, wanted)
    text = str(raised.value).partition("it has:")[2]
    assert "model-Q4_K_M.gguf" in text
    assert "BF16/model-BF16-00001-of-00002.gguf" in text
    assert "00002-of" not in text
    assert "mmproj" not in text


@pytest.mark.parametrize(
    ("names", "file"),
    [
        (["a.Q8_0.gguf", "a.Q4_0.gguf", "a.Q2_K.gguf"], "a.Q8_0.gguf"),
        (["a.Q4_0.gguf", "a.Q2_K.gguf"], "a.Q4_0.gguf"),
        (["anything.gguf", "mmproj.gguf"], "anything.gguf"),
        (["Q4_K_M/part-00001-of-00002.gguf", "Q4_K_M/part-00002-of-00002.gguf", "x.gguf"], None),
    ],
)
def test_without_a_wish_the_usual_one_is_chosen(names: list[str], file: str | None) -> None:
    assert pick(names, None) == (file or "Q4_K_M/part-00001-of-00002.gguf")


@pytest.mark.parametrize("names", [["a.gguf", "b.gguf"], ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf", "c-Q8_0.gguf"]])
def test_an_open_choice_is_an_error_that_lists_it(names: list[str]) -> None:
    with pytest.raises(LegatoError, match=r"more than one model.*a.*b"):
        pick(names, None)


def test_an_ambiguous_quantization_lists_only_what_fits() -> None:
    with pytest.raises(LegatoError, match="fits more than one") as raised:
        pick(["a-Q4_K_XL.gguf", "a-UD-Q4_K_XL.gguf", "a-Q8_0.gguf"], "Q4_K_XL")
    assert "a-UD-Q4_K_XL.gguf" in str(raised.value)
    assert "Q8_0" not in str(raised.value)
    assert pick(["a-Q4_K_XL.gguf", "a-UD-Q4_K_XL.gguf"], "UD-Q4_K_XL") == "a-UD-Q4_K_XL.gguf"


def test_a_repository_without_a_model_says_so() -> None:
    with pytest.raises(LegatoError, match="no GGUF model"):
        pick(["model.safetensors", "mmproj-f16.gguf"], None)


@pytest.mark.parametrize(
    "name",
    ["../../evil.gguf", "/etc/evil.gguf", "a//evil.gguf", "./evil.gguf", "a/../../evil.gguf", "a\\..\\evil.gguf"],
)
def test_names_that_leave_the_repository_are_no_choice(name: str) -> None:
    assert gguf_choices([name]) == []


def test_missing_parts_are_known() -> None:
    (choice,) = gguf_choices(["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"])
    assert choice.missing == ("m-00002-of-00003.gguf",)


@pytest.mark.parametrize(
    ("name", "count"),
    [("m-00002-of-00003.gguf", 3), ("m.gguf", 1), ("m-00001-of-00000.gguf", 1), ("m-00001-of-99999.gguf", 1)],
)
def test_parts_of_a_split_file(name: str, count: int) -> None:
    parts = split_parts(name)
    assert len(parts) == count
    assert name in parts


def test_stems() -> None:
    assert file_stem("sub/model-Q4_K_M.gguf") == "model-Q4_K_M"
    assert file_stem("sub/model-00001-of-00002.gguf") == "model"
    assert file_stem("model") == "model"
