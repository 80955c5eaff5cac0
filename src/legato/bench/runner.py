"""Runs a scenario on one target after the other."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from legato.bench.client import Client, http_client
from legato.bench.machine import describe
from legato.bench.notes import notes_on
from legato.bench.progress import BenchProgress
from legato.bench.prompts import Prompts
from legato.bench.reading import Sampling
from legato.bench.results import BenchRun, TargetRun
from legato.bench.scenarios import Scenario
from legato.bench.scenarios.scenario import TargetSession
from legato.bench.target import Target, chosen_for, connect, parse_all
from legato.bench.warm_up import WarmUpError, warm_up


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

    Args:
        scenario: What to do to them.
        targets: Servers that answered.
        progress: Told how far it is.
        seed: Of texts, think times and sampling.
        timeout_s: Silence after which a request counts as hung.
        options: More to keep with the run, for those who read it.
    """
    run = BenchRun(
        scenario=scenario.name,
        options={**scenario.options, "seed": seed, "timeout_s": timeout_s, **(options or {})},
        started_at=time.time(),
        machine=describe(),
    )
    prompts = Prompts(seed, secrets.token_hex(4))
    try:
        async with http_client() as http:
            for target in targets:
                sampling = Sampling(seed=seed, ignore_eos=True, context_tokens=scenario.context_tokens)
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
        LegatoError: One is misspelled, can't be reached, or its model is not clear.
    """
    addresses = parse_all(texts)
    names = [address.name for address in addresses]
    async with httpx.AsyncClient(trust_env=False) as http:
        return [
            await connect(
                address,
                http,
                model=chosen_for(address.name, models, names),
                api_key=chosen_for(address.name, api_keys, names),
            )
            for address in addresses
        ]


async def _measure(run: BenchRun, scenario: Scenario, target: Target, session: TargetSession) -> None:
    """Warm one target up and put the load on it; what was measured is in the run also if this is cancelled."""
    result = TargetRun(target=target.name, url=target.url, api=target.api, model=target.model)
    run.runs.append(result)
    session.progress.begin(target.name, scenario.steps)
    try:
        try:
            calibration, session.notes = await warm_up(session.client, session.prompts)
        except WarmUpError as error:
            session.notes = [f"Nothing was measured, as the warm-up failed: {error}"]
            return
        session.prompts = session.prompts.calibrated(calibration)
        session.client.start()
        await scenario.run(session)
    finally:
        result.requests = [request for request in session.client.requests if request.role != "warm-up"]
        result.notes = [*session.notes, *notes_on(result.requests)]
