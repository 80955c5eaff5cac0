from __future__ import annotations

import pytest

from legato.bench.prompts import Calibration, Prompts, calibrate


def test_the_same_key_gives_the_same_text() -> None:
    assert Prompts(1, "run").text("a", 100) == Prompts(1, "run").text("a", 100)


def test_texts_differ_from_their_first_word_on() -> None:
    prompts = Prompts(1, "run")
    firsts = {prompts.words(str(number), 5).split()[0] for number in range(2000)}
    assert len(firsts) == 2000


def test_another_run_changes_first_words_only() -> None:
    one, two = (Prompts(1, stamp).words("a", 50).split() for stamp in ("one", "two"))
    assert one[0] != two[0]
    assert one[1:] == two[1:]


def test_another_seed_changes_all() -> None:
    one, two = (Prompts(seed, "run").words("a", 50).split() for seed in (1, 2))
    assert sum(a == b for a, b in zip(one, two, strict=True)) < 10


@pytest.mark.parametrize("count", [1, 2, 12, 13, 500])
def test_counts_of_words(count: int) -> None:
    assert len(Prompts(1, "run").words("a", count).split()) == count


def test_a_question_has_ten_words() -> None:
    assert {len(Prompts(1, "run").question(str(number)).split()) for number in range(50)} == {10}


def test_lengths_follow_the_calibration() -> None:
    calibration = calibrate(20, 10 + 40, 220, 10 + 440)
    assert calibration == Calibration(2.0, 10.0)
    prompts = Prompts(1, "run", calibration)
    assert len(prompts.text("a", 1010).split()) == 500
    assert len(prompts.text("a", 1).split()) == 1


def test_counts_that_cannot_be_are_not_believed() -> None:
    assert calibrate(20, 50, 220, 51) == Calibration()
