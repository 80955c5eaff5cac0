"""Runs plans on the engine: fills batches, makes the library calls, samples."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from legato.core import calls
from legato.core.answers import EngineEnd, Logprobs
from legato.core.tokens import Tokens
from legato.engine.batch import Batch
from legato.engine.context import AbortedError, Context, EngineError
from legato.engine.sampler import Sampler, top_logprobs
from legato.engine.vocabulary import Vocabulary
from legato.scheduling.scheduler import Scheduler
from legato.scheduling.state import Chunk, Outcome, Plan, Sequence
from legato.wire.messages import Submit
from legato.worker.prefill_context import Reader


@dataclass(slots=True)
class Generation:
    """What the engine keeps of a request beside its KV cells."""

    to_read: Tokens
    """The prompt, and after a preemption what had been written until then."""
    sampler: Sampler
    top_logprobs: int | None
    answer: list[int] = field(default_factory=list)
    """The tokens written so far; the latest is the next decode's input."""


@dataclass(slots=True)
class CallResult:
    """What one library call brought."""

    part: Plan
    """The part of the plan that the call ran."""
    begun_s: float = 0.0
    ended_s: float = 0.0
    """After sampling; on the monotonic clock."""
    committed: dict[int, int] = field(default_factory=dict)
    """Tokens that answers gained, by request."""
    tokens: list[tuple[int, int, Logprobs | None]] = field(default_factory=list)
    """New tokens to send: request, token, log-probabilities if wanted."""
    ended: list[tuple[int, EngineEnd, str]] = field(default_factory=list)
    """Requests that have their last token: request, why, and the error's text."""

    def call(self, predicted_s: float) -> calls.Call:
        """The call in the meter's words.

        Args:
            predicted_s: What it was expected to take.
        """
        chunks = [calls.PrefillChunk(chunk.id, chunk.start, chunk.length) for chunk in self.part.chunks]
        return calls.Call(self.begun_s, self.ended_s, list(self.part.decodes), chunks, predicted_s)

    @property
    def outcome(self) -> Outcome:
        """The same in the scheduler's words."""
        return Outcome(self.committed, [i for i, reason, _ in self.ended if reason != "failed"])


class Executor:
    """Owns the generations of admitted requests and the batch.

    Args:
        context: Whose cells are filled.
        reader: Where prompts are read interruptibly; None for nowhere.
        vocabulary: Of the model.
        batch_tokens: Most tokens in one library call.
        joined_calls: One library call a step instead of one for the decodes and one for each chunk.
    """

    def __init__(
        self,
        context: Context,
        reader: Reader | None,
        vocabulary: Vocabulary,
        *,
        batch_tokens: int,
        joined_calls: bool,
    ) -> None:
        self._context = context
        self._reader = reader
        self._vocabulary = vocabulary
        self._batch = Batch(batch_tokens + context.sequences)
        # Its own: the other is filled while a call that reads this one is interrupted.
        self._reader_batch = Batch(batch_tokens)
        self._batch_tokens = batch_tokens
        self._joined_calls = joined_calls
        self._generations: dict[int, Generation] = {}

    def open(self, request: Submit, max_new_tokens: int) -> None:
        """Make ready to answer a request with at most that many tokens, which its cells have room for, or to go on.

        A request that had given its cells up goes on where it was, with its sampler as it was.
        """
        if generation := self._generations.get(request.id):
            written = np.array(generation.answer[:-1], dtype=np.int32)
            generation.to_read = np.concatenate([request.tokens, written])
            return
        prompt = request.tokens
        sampler = Sampler(self._vocabulary, request.sampling, prompt, max_new_tokens)
        self._generations[request.id] = Generation(prompt, sampler, request.top_logprobs)

    def tokens_of(self, request: Submit) -> Tokens:
        """What is in a request's cells or is to come there: its prompt, and what it has written."""
        generation = self._generations.get(request.id)
        if generation is None or not generation.answer:
            return request.tokens
        return np.concatenate([request.tokens, np.array(generation.answer, dtype=np.int32)])

    def close(self, request_id: int) -> None:
        """Let go of a request, if it is open."""
        generation = self._generations.pop(request_id, None)
        if generation is not None:
            generation.sampler.close()

    def run(self, plan: Plan, scheduler: Scheduler) -> Iterator[CallResult]:
        """Run a plan call by call. Each result must be committed before the next is asked for.

        Raises:
            AbortedError: An interruptible call was ended; what it read counts for nothing.
        """
        for part in self._calls(plan):
            try:
                yield self._run_call(part, scheduler)
            except AbortedError:
                raise
            except EngineError as error:
                ids = [*part.decodes, *(chunk.id for chunk in part.chunks)]
                yield CallResult(Plan(), ended=[(i, "failed", f"The engine failed: {error}.") for i in ids])

    def _calls(self, plan: Plan) -> Iterator[Plan]:
        tokens = len(plan.decodes) + sum(chunk.length for chunk in plan.chunks)
        is_apart = any(chunk.interruptible for chunk in plan.chunks)
        if self._joined_calls and tokens <= self._batch_tokens and not is_apart:
            yield plan
            return
        if plan.decodes:
            yield Plan(decodes=plan.decodes)
        for chunk in plan.chunks:
            yield Plan(chunks=(chunk,))

    def _run_call(self, part: Plan, scheduler: Scheduler) -> CallResult:
        result = CallResult(part, begun_s=time.monotonic())
        if part.chunks and part.chunks[0].interruptible:
            context, rows = self._read(part.chunks[0], scheduler)
        else:
            context, rows = self._context, self._fill(part, scheduler)
            context.evaluate(self._batch)
        for sequence, row in rows:
            self._sample(context, sequence, row, result)
        result.ended_s = time.monotonic()
        return result

    def _read(self, chunk: Chunk, scheduler: Scheduler) -> tuple[Context, list[tuple[Sequence, int]]]:
        """Read a chunk interruptibly; returns where, and the row to sample from if it was the last of its prompt."""
        assert self._reader is not None, "nothing is planned for where nothing can be read"
        context, batch = self._reader.context, self._reader_batch
        # What an aborted call or a prompt that went away has left there.
        context.remove(0, chunk.start)
        batch.clear()
        sequence = scheduler[chunk.id]
        tokens = self._generations[chunk.id].to_read[chunk.start : chunk.start + chunk.length]
        is_last = self._is_last(sequence, chunk.start + chunk.length)
        row = batch.add(0, tokens, chunk.start, want_logits=is_last)
        context.evaluate(batch)
        self._reader.handover.prepare()
        return context, [(sequence, row)] if is_last else []

    def hand_over(self, slot: int) -> NDArray[np.uint8]:
        """Move what was read interruptibly into a slot.

        Returns:
            The state that was moved.

        Raises:
            EngineError: The library refuses.
        """
        assert self._reader is not None, "something was read there"
        return self._reader.handover.move(slot)

    @staticmethod
    def _is_last(sequence: Sequence, end: int) -> bool:
        """True if a chunk that ends there is followed by the answer's first token."""
        return end == sequence.prompt_tokens and sequence.new_tokens == 0

    def _fill(self, part: Plan, scheduler: Scheduler) -> list[tuple[Sequence, int]]:
        """Fill the batch in the order of slots, which the library wants; returns the rows to sample from."""
        batch = self._batch
        batch.clear()
        entries = [(scheduler[i], 0) for i in part.decodes] + [(scheduler[c.id], c.length) for c in part.chunks]
        entries.sort(key=_slot)
        rows: list[tuple[Sequence, int]] = []
        for sequence, chunk_length in entries:
            generation = self._generations[sequence.id]
            start = sequence.computed_tokens
            if chunk_length == 0:
                rows.append((sequence, batch.add_one(slot_of(sequence), generation.answer[-1], start)))
                continue
            end = start + chunk_length
            is_last = self._is_last(sequence, end)
            row = batch.add(slot_of(sequence), generation.to_read[start:end], start, want_logits=is_last)
            if is_last:
                rows.append((sequence, row))
        return rows

    def _sample(self, context: Context, sequence: Sequence, row: int, result: CallResult) -> None:
        generation = self._generations[sequence.id]
        token = generation.sampler.sample(context, row)
        generation.answer.append(token)
        result.committed[sequence.id] = 1
        if self._vocabulary.is_end(token):
            result.ended.append((sequence.id, "stop", ""))
            return
        logprobs = None
        if generation.top_logprobs is not None:
            chosen, top = top_logprobs(context.logits(row), token, generation.top_logprobs)
            logprobs = Logprobs(chosen.logprob, [(t.token, t.logprob) for t in top])
        result.tokens.append((sequence.id, token, logprobs))
        if sequence.new_tokens + 1 >= sequence.max_new_tokens:
            result.ended.append((sequence.id, "length", ""))


def slot_of(sequence: Sequence) -> int:
    """The KV sequence of an admitted request."""
    assert sequence.slot is not None, "only admitted sequences are planned"
    return sequence.slot


def _slot(entry: tuple[Sequence, int]) -> int:
    return slot_of(entry[0])
