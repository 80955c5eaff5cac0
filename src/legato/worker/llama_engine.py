"""llama.cpp as the loop's engine: fills batches, makes the library calls, samples."""

from __future__ import annotations

from collections.abc import Callable

from legato.core.answers import Logprobs
from legato.core.tokens import KvState
from legato.engine.batch import Batch
from legato.engine.context import Context
from legato.engine.sampler import Sampler, top_logprobs
from legato.engine.vocabulary import Vocabulary
from legato.runtime.engine import CallResult, Requests
from legato.runtime.request import Request
from legato.scheduling.plan import Chunk, Plan
from legato.worker.prefill_context import PrefillContext


class LlamaEngine:
    """Runs one library call after another on a context, and interruptible ones on a context of their own.

    Args:
        context: Whose cells are filled.
        prefill_context: Where prompts are prefilled interruptibly; None for nowhere.
        vocabulary: Of the model.
        batch_tokens: Most tokens in one library call.
        joined_calls: One library call a step instead of one for the decodes and one for each chunk.
    """

    def __init__(
        self,
        context: Context,
        prefill_context: PrefillContext | None,
        vocabulary: Vocabulary,
        *,
        batch_tokens: int,
        joined_calls: bool,
    ) -> None:
        self._context = context
        self._prefill_context = prefill_context
        self._vocabulary = vocabulary
        self._batch = Batch(batch_tokens + context.sequences)
        # Its own: the other is filled while a call on this one is interrupted.
        self._prefill_batch = Batch(batch_tokens)
        self._batch_tokens = batch_tokens
        self._joined_calls = joined_calls

    def interrupt_by(self, at_node: Callable[[], bool]) -> None:
        """Have a function asked between the nodes of interruptible calls; True ends the call."""
        if self._prefill_context is not None:
            self._prefill_context.context.set_abort(at_node)

    def open(self, request: Request) -> None:
        """A request was given KV cells. Whoever gives them up and has them again goes on with its sampler as it was."""
        if request.sampler is None:
            request.sampler = Sampler(self._vocabulary, request.sampling, request.prompt, request.max_new_tokens)

    def close(self, request: Request) -> None:
        """Let go of a request."""
        if request.sampler is not None:
            request.sampler.close()
            request.sampler = None

    def calls(self, plan: Plan) -> list[Plan]:
        """One call for the decodes and one for each chunk, or one for all."""
        tokens = len(plan.decodes) + sum(chunk.length for chunk in plan.chunks)
        if self._joined_calls and tokens <= self._batch_tokens and plan.interruptible is None:
            return [Plan(plan.decodes, plan.chunks)] if tokens else []
        decodes = [Plan(decodes=plan.decodes)] if plan.decodes else []
        return decodes + [Plan(chunks=(chunk,)) for chunk in plan.chunks]

    def run(self, part: Plan, requests: Requests) -> CallResult:
        """Make one library call, and sample.

        Raises:
            AbortedError: It was interruptible and was ended.
            EngineError: The library failed.
        """
        result = CallResult(part)
        if part.interruptible is not None:
            context, rows = self._prefill(part.interruptible, requests)
        else:
            context, rows = self._context, self._fill(part, requests)
            context.evaluate(self._batch)
        for request, row in rows:
            self._sample(context, request, row, result)
        return result

    def _prefill(self, chunk: Chunk, requests: Requests) -> tuple[Context, list[tuple[Request, int]]]:
        """Prefill a chunk interruptibly; returns where, and the row to sample from if it was the last of its prompt."""
        assert self._prefill_context is not None, "nothing is planned for where there is none"
        context, batch, request = self._prefill_context.context, self._prefill_batch, requests[chunk.id]
        # What an aborted call or a prompt that went away has left there.
        context.remove(0, chunk.start)
        batch.clear()
        rows = _add_chunk(batch, 0, request, chunk.start, chunk.length)
        context.evaluate(batch)
        self._prefill_context.handover.prepare()
        return context, rows

    def leave_prefill_context(self, slot: int) -> KvState:
        """Move what was prefilled interruptibly into a slot; returns the state that was moved.

        Raises:
            EngineError: The library refuses.
        """
        assert self._prefill_context is not None, "something was prefilled there"
        return self._prefill_context.handover.move(slot)

    def _fill(self, part: Plan, requests: Requests) -> list[tuple[Request, int]]:
        """Fill the batch in the order of slots, which the library wants; returns the rows to sample from."""
        batch = self._batch
        batch.clear()
        entries = [(requests[i], 0) for i in part.decodes] + [(requests[c.id], c.length) for c in part.chunks]
        entries.sort(key=lambda entry: _slot_of(entry[0]))
        rows: list[tuple[Request, int]] = []
        for request, chunk_length in entries:
            start, slot = request.computed_tokens, _slot_of(request)
            if chunk_length:
                rows += _add_chunk(batch, slot, request, start, chunk_length)
            else:
                rows.append((request, batch.add_one(slot, request.answer[-1], start)))
        return rows

    def _sample(self, context: Context, request: Request, row: int, result: CallResult) -> None:
        sampler = request.sampler
        assert isinstance(sampler, Sampler), "it was opened"
        token = sampler.sample(context, row)
        request.answer.append(token)
        result.committed[request.id] = 1
        if self._vocabulary.is_end(token):
            result.ended.append((request.id, "stop", ""))
            return
        logprobs = None
        if request.top_logprobs is not None:
            chosen, top = top_logprobs(context.logits(row), token, request.top_logprobs)
            logprobs = Logprobs(chosen.logprob, [(t.token, t.logprob) for t in top])
        result.tokens.append((request.id, token, logprobs))
        if request.new_tokens + 1 >= request.max_new_tokens:
            result.ended.append((request.id, "length", ""))


def _add_chunk(batch: Batch, sequence: int, request: Request, start: int, length: int) -> list[tuple[Request, int]]:
    """Add a chunk to a batch; returns its last row to sample from, if the answer's first token follows it."""
    end = start + length
    is_last = end == request.prompt_tokens and request.new_tokens == 0
    row = batch.add(sequence, request.tokens[start:end], start, want_logits=is_last)
    return [(request, row)] if is_last else []


def _slot_of(request: Request) -> int:
    assert request.slot is not None, "only admitted requests are planned"
    return request.slot
