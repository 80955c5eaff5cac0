"""First requests to a target: they load what is loaded late, and tell how the target counts tokens."""

from __future__ import annotations

from dataclasses import replace

from legato.bench.client import Client
from legato.bench.prompts import TOKENS_PER_WORD, Calibration, Prompts, calibrate
from legato.bench.results import MeasuredRequest

FEW_WORDS, MANY_WORDS = 20, 220
"""Two lengths: from the difference follow the tokens of a word, from the rest those of the chat template."""

ANSWER_TOKENS = 4


class WarmUpError(Exception):
    """The target does not answer even short requests; the text is a sentence."""


async def warm_up(client: Client, prompts: Prompts) -> tuple[Calibration, list[str]]:
    """Ask two short questions: how the target counts, and notes about what it does not do.

    Raises:
        WarmUpError: It answered with an error.
    """
    notes: list[str] = []
    few = await _ask(client, prompts, FEW_WORDS)
    first_error = few.error
    if few.error and not few.event_s:
        # Servers that check parameters may not know this one, and say so in many ways.
        client.sampling = replace(client.sampling, ignore_eos=False)
        few = await _ask(client, prompts, FEW_WORDS)
        notes.append("The server does not take ignore_eos: its model may end answers before their full length.")
    if few.error:
        raise WarmUpError(first_error)
    many = await _ask(client, prompts, MANY_WORDS)
    if many.error:
        raise WarmUpError(many.error)
    if few.prompt_tokens is None or many.prompt_tokens is None:
        notes.append(
            f"The server does not count tokens: prompt lengths are guesses at {TOKENS_PER_WORD} tokens a word, and "
            "each event counts as one token of the answer."
        )
        return Calibration(), notes
    return calibrate(FEW_WORDS, few.prompt_tokens, MANY_WORDS, many.prompt_tokens), notes


async def _ask(client: Client, prompts: Prompts, words: int) -> MeasuredRequest:
    return (await client.ask(prompts.words(f"warm-up {words}", words), ANSWER_TOKENS, role="warm-up")).measured
