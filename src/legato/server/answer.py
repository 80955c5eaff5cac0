"""One request's answer, whichever API it came through: its typed parts as they come, or all of it at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from fastapi import Request

from legato.core.origin import ServiceTier
from legato.core.timings import Timings
from legato.server.api_error import ApiError
from legato.server.generation import AnswerRequest, Finish, Generation, Progress
from legato.server.routes import client_of, clients_of, service_of
from legato.server.text import Piece

Part = Piece | Progress | Finish
"""What an answer brings of each of its choices; the last part of a choice is its `Finish`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was submitted for one request."""

    id: str
    service_tier: ServiceTier
    """How it is served."""
    generations: Sequence[Generation]
    """One a choice."""

    async def parts(self) -> AsyncIterator[tuple[int, Part]]:
        """The parts of all choices as they come, each with its choice's index.

        Raises:
            ApiError: The engine failed at one of them; the others are cancelled.
        """
        if len(self.generations) == 1:
            async for part in self.generations[0]:
                yield 0, part
            return
        parts: asyncio.Queue[tuple[int, Part | ApiError]] = asyncio.Queue()

        async def forward(index: int, generation: Generation) -> None:
            try:
                async for part in generation:
                    parts.put_nowait((index, part))
            except ApiError as error:
                parts.put_nowait((index, error))

        tasks = [asyncio.create_task(forward(i, g)) for i, g in enumerate(self.generations)]
        try:
            running = len(tasks)
            while running:
                index, received = await parts.get()
                if isinstance(received, ApiError):
                    raise received
                running -= isinstance(received, Finish)
                yield index, received
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def whole(self) -> list[tuple[Piece, Finish]]:
        """All choices at their end, each with all its text.

        Raises:
            ApiError: The engine failed at one of them.
        """
        pieces: list[list[Piece]] = [[] for _ in self.generations]
        finishes: dict[int, Finish] = {}
        async for index, part in self.parts():
            if isinstance(part, Finish):
                finishes[index] = part
            elif isinstance(part, Piece):
                pieces[index].append(part)
        return [
            (Piece("".join(p.text for p in own), [token for p in own for token in p.tokens]), finishes[index])
            for index, own in enumerate(pieces)
        ]


def begin_answer(request: Request, asked: AnswerRequest) -> Answer:
    """Submit what a request's body asks for, as its sender is to be served.

    Raises:
        ApiError: A prompt is empty or too long, too many requests wait, or no model is ready.
    """
    clients, client = clients_of(request), client_of(request)
    tier = clients.service_tier(client, asked.service_tier)
    generations = service_of(request).submit_all(
        asked,
        client=client,
        service_tier=tier,
        gap_target_s=clients.gap_target_s(client, asked.gap_target_ms),
        arrived_s=request.state.arrived_s,
    )
    return Answer(asked.id, tier, generations)


def slowest(finishes: Iterable[Finish]) -> Timings:
    """The timings that stand for the whole request: those of the choice that took longest."""
    return max((finish.timings for finish in finishes), key=lambda timings: timings.total_ms)
