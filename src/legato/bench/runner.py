"""Runs a scenario on one target after the other."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from legato.bench.client import Client, http_client
from legato.bench.machine import describe
from legato.bench.notes import notes_on
from legato.bench.progress import BenchProgress
from legato.bench.prompts import Prompts
from legato.bench.reading import Sampling
from legato.bench.results import BenchRun, TargetRun
from legato.bench.scenarios import Scenario
from legato.bench.scenarios.scenario import TargetSession
from legato.bench.target import Target, chosen_for, connect, parse
from legato.bench.warm_up import WarmUpError, warm_up
from legato.errors import LegatoError


async def run_bench(
    scenario: Scenario,
    targets: Sequence[Target],
    progress: BenchProgress,
    *,
    seed: int = 1,
    timeout_s: float = 120.0,
    options: Mapping[str, Any] | None = None,
) -> BenchRun:
    """Measure all targets, each alone. Cancelled, it returns what was measured until then, as incomplete.

    The seed is that of texts, think times and sampling; `timeout_s` the silence after which a request counts as hung;
    `options` are more to keep with the run, for those who read it.
    """
    run = BenchRun(
        scenario=scenario.name,
        options={**scenario.options, "seed": seed, "timeout_s": timeout_s, **(options or {})},
        started_at=time.time(),
        machine=describe(),
    )
    prompts = Prompts(seed, secrets.token_hex(4))
    # Prompts are only about as long as they were to be.
    sampling = Sampling(seed=seed, context_tokens=(scenario.context_tokens * 5 // 4 // 256 + 1) * 256)
    try:
        async with http_client() as http:
            for target in targets:
                client = Client(target, http, sampling, timeout_s)
                await _measure(run, scenario, target, TargetSession(client, prompts, progress))
    except asyncio.CancelledError:
        run.complete = False
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
    return run


async def connect_all(texts: Sequence[str], models: Sequence[str] = (), api_keys: Sequence[str] = ()) -> list[Target]:
    """Find the servers that `--target`, `--model` and `--api-key` name.

    Raises:
        LegatoError: One is misspelled, can't be reached, or its model is not clear; or two have the same name.
    """
    addresses = [parse(text) for text in texts]
    names = [address.name for address in addresses]
    for name in names:
        if names.count(name) > 1:
            raise LegatoError(f"Two targets are called {name}; give each a name of its own.")
    async with http_client() as http:
        return [
            await connect(one, http, chosen_for(one.name, models, names), chosen_for(one.name, api_keys, names))
            for one in addresses
        ]


async def _measure(run: BenchRun, scenario: Scenario, target: Target, session: TargetSession) -> None:
    """Warm one target up and put the load on it; what was measured is in the run also if this is cancelled."""
    result = TargetRun(target=target.name, url=target.url, api=target.api, model=target.model)
    run.runs.append(result)
    session.progress.begin(target.name, scenario.steps)
    try:
        calibration, session.notes = await warm_up(session.client, session.prompts)
        session.prompts = replace(session.prompts, calibration=calibration)
        session.client.start()
        await scenario.run(session)
    except WarmUpError as error:
        session.notes = [f"Nothing was measured, as the warm-up failed: {error}"]
    finally:
        result.requests = [request for request in session.client.requests if request.role != "warm-up"]
        result.notes = [*session.notes, *notes_on(result.requests)]
