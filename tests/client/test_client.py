"""What the engine's client tells its workers of requests, settings and costs."""

from __future__ import annotations

import pytest

from legato.client.status import NotReadyError, Stopped
from legato.scheduling.costs import Coefficients
from legato.wire.messages import Configure, LearnedCosts, SetBudgets, Submit
from tests.client.fake_transport import COSTS, SETTINGS, Stage, ends, play

# Submitting


def test_a_request_carries_its_client_its_target_and_its_tier() -> None:
    async def script(stage: Stage) -> None:
        stage.submit()
        stage.submit(gap_target_s=0.05, tier="flex")
        plain, own = stage.worker.take(Submit)
        assert (plain.client, plain.gap_target_s, plain.background) == ("ana", None, False)
        assert (own.client, own.gap_target_s, own.background) == ("ana", 0.05, True)
        assert plain.tokens.tolist() == [1, 2, 3]

    play(script)


def test_nothing_can_be_asked_before_the_model_is_ready() -> None:
    async def script(stage: Stage) -> None:
        with pytest.raises(NotReadyError, match=r"The model is being loaded \(0%\)"):
            stage.submit()
        stage.client.supervisor.start()
        worker = await stage.next_ready()
        stage.submit()
        assert len(worker.take(Submit)) == 1

    play(script, ready=False)


def test_a_client_that_was_closed_has_ended_its_worker_and_its_requests() -> None:
    async def script(stage: Stage) -> None:
        request = stage.submit()
        assert stage.client.worker_pid == 1
        await stage.client.close()
        assert stage.worker.stopped
        assert [end.error for end in ends(request)] == ["The server is stopping."]
        assert (stage.status, stage.client.requests, stage.client.worker_pid) == (Stopped(), [], None)

    play(script)


# Changing settings


def test_a_change_is_sent_and_remembered_for_the_next_worker() -> None:
    async def script(stage: Stage) -> None:
        change = Configure("adaptive", None, 0.05)
        stage.client.configure(change)
        assert stage.worker.take(Configure) == [change]
        second = await stage.replace_worker()
        settings = second.settings
        assert (settings.policy, settings.chunk, settings.gap_target_s) == ("adaptive", None, 0.05)
        assert settings.model_path == "model.gguf"
        assert second.take(Configure) == []

    play(script)


def test_changes_while_a_worker_starts_reach_it() -> None:
    async def script(stage: Stage) -> None:
        changes = [Configure("whole", 32, 0.2), SetBudgets(None, 5)]

        def change() -> None:
            stage.client.configure(changes[0])
            stage.client.set_cache_budgets(changes[1])

        stage.transport.while_starting = change
        stage.client.supervisor.start()
        worker = await stage.transport.next()
        assert worker.settings == SETTINGS
        assert worker.sent == changes

    play(script, ready=False)


def test_a_change_before_there_is_a_worker_is_in_its_settings() -> None:
    async def script(stage: Stage) -> None:
        stage.client.configure(Configure("whole", None, 0.2))
        stage.client.supervisor.start()
        worker = await stage.transport.next()
        assert (worker.settings.policy, worker.settings.gap_target_s) == ("whole", 0.2)
        assert worker.sent == []

    play(script, ready=False)


def test_a_budget_is_sent_and_remembered_and_the_other_one_stays() -> None:
    async def script(stage: Stage) -> None:
        stage.client.set_cache_budgets(SetBudgets(7, None))
        stage.client.set_cache_budgets(SetBudgets(None, 8))
        assert stage.worker.take(SetBudgets) == [SetBudgets(7, None), SetBudgets(None, 8)]
        settings = stage.client.settings
        assert (settings.cache_memory_bytes, settings.cache_disk_bytes) == (7, 8)

    play(script)


def test_a_new_gap_target_is_that_of_running_answers_without_one_of_their_own() -> None:
    async def script(stage: Stage) -> None:
        plain, own = stage.submit(), stage.submit(gap_target_s=0.3)
        stage.client.configure(Configure("chunked", 64, 0.05))
        later = stage.submit()
        assert [r.timeline.gap_target_s for r in (plain, own, later)] == [0.05, 0.3, 0.05]

    play(script)


# Costs


def test_what_was_calibrated_is_remembered_for_the_next_worker() -> None:
    async def script(stage: Stage) -> None:
        assert stage.worker.settings.costs is None
        assert (await stage.replace_worker()).settings.costs == COSTS

    play(script)


def test_learned_costs_are_told_and_remembered_for_the_next_worker() -> None:
    told: list[Coefficients] = []
    learned = Coefficients(0.007, 0.001, 1e-7, 0.01, 0.001, 1e-7)

    async def script(stage: Stage) -> None:
        stage.worker.tell(LearnedCosts(learned))
        assert told == [learned]
        assert (await stage.replace_worker()).settings.costs == learned

    play(script, on_costs=told.append)


def test_nobody_need_care_for_costs() -> None:
    async def script(stage: Stage) -> None:
        stage.worker.tell(LearnedCosts(COSTS))

    play(script)
