"""What a run of measurements does and in which order, with made-up measurements and a clock that they move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from legato.cli.tune import note
from legato.scheduling.costs import Coefficients
from legato.tuning.choice import choose
from legato.tuning.isolated import Measure, OutOfTimeError, RefusedError, Result, Task
from legato.tuning.measure import Measurement, ThreadTimes
from legato.tuning.session import Findings, Session, thread_counts

USUAL = Coefficients(0.005, 0.001, 1e-6, 0.002, 0.003, 1e-7, 1e-7, 1)


def costs(**changes: float) -> Coefficients:
    return msgspec.structs.replace(USUAL, **changes)


SLOW, FAST = 0.003, 0.001
USUAL_NAME, FLASH_NAME, F32_NAME = "FlashAttention off", "FlashAttention on", "FlashAttention off, f32 KV"


class Machine:
    """Runs nothing: answers measurements with the seconds a token that were laid down for each configuration in turn.

    Args:
        usual: Of FlashAttention off, each time it is measured.
        flash: Of FlashAttention on.
        f32: Of f32 KV state.
        flash_f32: Of FlashAttention on with f32 KV state.
        deepest: Tokens of the deepest call of all.
        took_s: Seconds of every task.
    """

    def __init__(
        self,
        usual: Sequence[float | None],
        *,
        flash: Sequence[float | None] = (),
        f32: Sequence[float | None] = (),
        flash_f32: Sequence[float | None] = (),
        deepest: int = 4000,
        took_s: float = 0.0,
    ) -> None:
        self._answers = {
            ("off", "f16"): list(usual),
            ("on", "f16"): list(flash),
            ("off", "f32"): list(f32),
            ("on", "f32"): list(flash_f32),
        }
        self._deepest = deepest
        self._took_s = took_s
        self.now_s = 0.0
        self.probes_s: list[float] = []
        self.measured: list[str] = []
        self.reported: list[str] = []

    def __call__(self, task: Task, result: type[Result], *, timeout_s: float) -> Result:
        """Answer a task; there is not enough time for what None was laid down."""
        assert timeout_s > 0
        self.now_s += self._took_s
        answer = self._measure(task) if isinstance(task, Measure) else ThreadTimes({1: 0.1}, {1: 0.1})
        return msgspec.json.decode(msgspec.json.encode(answer), type=result)

    def _measure(self, task: Measure) -> Measurement:
        c = task.configuration
        answers = self._answers.get((c.flash_attention, c.kv_type_k))
        if not answers:
            raise RefusedError("not here")
        self.measured.append(f"{c.flash_attention} {c.kv_type_k}")
        token_s = answers.pop(0)
        if token_s is None:
            raise OutOfTimeError("there was not enough time")
        probe_s = self.probes_s.pop(0) if self.probes_s else 1.0
        return Measurement(costs(prefill_token_s=token_s), {}, None, self._deepest, probe_s, interruptible=True)


def tuned(machine: Machine, limit_s: float = 600.0) -> tuple[str, Findings]:
    """The name of what is chosen, and all findings."""
    findings = Session(
        Path("tiny.gguf"), size_bytes=1, own_weights="F16", limit_s=limit_s, gap_target_s=0.1, convert=False,
        report=lambda name, _share: machine.reported.append(name), runner=machine, clock=lambda: machine.now_s,
    ).run()  # fmt: skip
    index = choose([trial.measured() for trial in findings.done], 0.1).index
    return findings.done[index].name, findings


def unconfirmed(findings: Findings) -> list[str]:
    return [trial.name for trial in findings.done if not trial.is_confirmed]


def test_what_is_better_twice_is_chosen() -> None:
    machine = Machine([SLOW, SLOW], flash=[FAST, FAST])
    name, findings = tuned(machine)
    assert name == FLASH_NAME
    assert unconfirmed(findings) == []
    assert machine.measured == ["off f16", "on f16", "on f16", "off f16"]


def test_nothing_is_measured_again_where_the_usual_is_best() -> None:
    machine = Machine([FAST], flash=[SLOW], f32=[FAST])
    assert tuned(machine)[0] == USUAL_NAME
    assert machine.measured == ["off f16", "on f16", "off f32"]


def test_a_machine_that_was_slow_just_once_does_not_decide() -> None:
    name, findings = tuned(Machine([SLOW, FAST], flash=[FAST, FAST]))
    assert name == USUAL_NAME
    assert unconfirmed(findings) == [FLASH_NAME]
    assert findings.skipped == []


def test_the_next_best_is_confirmed_too() -> None:
    name, findings = tuned(Machine([SLOW, SLOW, SLOW], flash=[FAST, SLOW], f32=[0.002, 0.002]))
    assert name == F32_NAME
    assert unconfirmed(findings) == [FLASH_NAME]


def test_after_two_that_were_not_confirmed_the_usual_is_kept() -> None:
    machine = Machine([SLOW, SLOW, SLOW], flash=[FAST, SLOW], f32=[FAST, SLOW], flash_f32=[FAST, FAST])
    name, findings = tuned(machine)
    assert name == USUAL_NAME
    assert unconfirmed(findings) == [FLASH_NAME, F32_NAME, "FlashAttention on, f32 KV"]
    assert findings.skipped == ["FlashAttention on, f32 KV once more: two others were not confirmed"]


def test_the_table_says_what_was_not_confirmed_and_what_was_not_measured_deep() -> None:
    _, findings = tuned(Machine([SLOW, FAST], flash=[FAST, FAST], deepest=749))
    shallow = "measured to 749 tokens of depth"
    notes = [note(trial) for trial in findings.done]
    assert notes == [shallow, f"faster once, not twice: not chosen; {shallow}"]
    _, findings = tuned(Machine([SLOW, SLOW], flash=[FAST, FAST], deepest=750))
    assert [note(trial) for trial in findings.done] == ["", ""]


def test_the_pace_of_the_machine_is_taken_into_account() -> None:
    machine = Machine([SLOW, 2 * FAST], flash=[FAST, FAST])
    # While the usual one is measured again the machine is at half its pace.
    machine.probes_s = [1.0, 1.0, 1.0, 2.0]
    name, findings = tuned(machine)
    assert name == USUAL_NAME
    assert unconfirmed(findings) == [FLASH_NAME]


def test_what_cannot_be_measured_again_is_not_chosen() -> None:
    name, findings = tuned(Machine([SLOW], flash=[FAST, None]))
    assert name == USUAL_NAME
    assert unconfirmed(findings) == [FLASH_NAME]
    assert findings.skipped == ["FlashAttention on once more: there was not enough time"]


def test_time_to_confirm_is_kept_from_the_beginning() -> None:
    machine = Machine([SLOW], flash=[FAST, FAST])
    name, findings = tuned(machine, limit_s=6.5)
    assert name == USUAL_NAME
    assert machine.measured == ["off f16"]
    assert "FlashAttention on: no time left" in findings.skipped


ALL = [USUAL_NAME, FLASH_NAME, F32_NAME, "FlashAttention on, q8_0 KV", "FlashAttention on, f32 KV"]
"""Configurations in the order in which they are tried; `Machine` refuses the fourth."""


# Every task takes 2 s, half a second longer than its trial, which from the second one on is known; 4 s are kept for a
# confirmation. Less than 17.5 s leave no time to try numbers of threads.
@pytest.mark.parametrize(("limit_s", "tried"), [(9.0, 1), (9.75, 2), (11.0, 3), (13.0, 4), (15.0, 5)])
def test_what_there_is_no_time_for_is_said(limit_s: float, tried: int) -> None:
    machine = Machine([FAST], flash=[SLOW], f32=[SLOW], flash_f32=[SLOW], took_s=2.0)
    name, findings = tuned(machine, limit_s=limit_s)
    assert name == USUAL_NAME
    assert machine.reported == [trial.name for trial in findings.trials] == ALL[:tried]
    assert findings.skipped == [f"{name}: no time left" for name in ALL[tried:]]
    assert machine.now_s <= limit_s


def test_the_first_is_measured_whatever_the_limit_is() -> None:
    machine = Machine([FAST], flash=[SLOW], took_s=60.0)
    _, findings = tuned(machine, limit_s=10.0)
    assert machine.reported == [USUAL_NAME]
    assert machine.measured == ["off f16"]
    assert [name.partition(":")[2] for name in findings.skipped] == [" no time left"] * 4


def test_thread_counts_begin_with_the_usual_one() -> None:
    assert thread_counts(1, 1) == [1]
    assert thread_counts(2, 2) == [2, 1]
    assert thread_counts(12, 6) == [6, 12, 8, 4, 2, 1]
