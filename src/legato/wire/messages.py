"""What the server process and an engine worker say to each other: msgspec structures, packed as arrays.

Instants are seconds of the worker's monotonic clock: where it runs on the server's machine, that is the server's too.
"""

from __future__ import annotations

import msgspec
import numpy as np

from legato.core.answers import EngineEnd, Logprobs
from legato.core.cache import CacheAction, CacheEntry, CacheFigures, Restored
from legato.core.calls import Call
from legato.core.choices import CacheScope, FlashAttention, KvType, PolicyName
from legato.core.sampling import SamplingParameters
from legato.core.tokens import Tokens
from legato.scheduling.costs import Coefficients


class EngineSettings(msgspec.Struct, frozen=True):
    """How a worker loads its model and plans its steps. None leaves the choice to the worker."""

    model_path: str
    context_tokens: int | None = None
    """KV cells of one sequence: prompt and answer together."""
    parallel: int | None = None
    """Sequences that can be read or written at once."""
    batch_tokens: int = 512
    """Most tokens in one library call."""
    threads: int | None = None
    """Threads for decode."""
    threads_prefill: int | None = None
    """Threads for prefill."""
    gpu_layers: int = -1
    flash_attention: FlashAttention | None = None
    kv_type_k: KvType = "f16"
    kv_type_v: KvType = "f16"
    policy: PolicyName = "adaptive"
    chunk: int | None = None
    """Prompt tokens that a step of policy `chunked` reads."""
    gap_target_s: float = 0.1
    """Gap target of answers that have none of their own."""
    background_wait_s: float = 600.0
    """Longest time that a background request waits for the engine to be idle."""
    interruptible: bool | None = None
    """Read long prompts in a context of their own, which steps of others may interrupt; None where it is possible."""
    costs: Coefficients | None = None
    """What steps cost on this machine; None calibrates before the model is ready."""
    cache_scope: CacheScope = "server"
    """Who may begin with what whose requests have left."""
    cache_memory_bytes: int | None = None
    """Memory for states outside the cells; None for a share of what is free."""
    cache_disk_bytes: int | None = None
    """Disk space for them; None for a share of what is free."""
    cache_folder: str = ""
    """Where those on disk are; empty for nowhere."""
    joined_calls: bool = False
    """Put a step's decodes and chunks into one library call: better on most GPUs, worse on most CPUs."""
    record_calls: bool = True
    """Report what was in each library call and how long it took."""
    log_level: int = 30
    """Python's logging level in the worker."""


class ModelInfo(msgspec.Struct, frozen=True):
    """A model that is ready."""

    description: str
    parameters: int
    size_bytes: int
    context_tokens: int
    """KV cells of one sequence."""
    parallel: int
    """Sequences that can be read or written at once."""
    threads: int
    threads_prefill: int
    flash_attention: FlashAttention
    policy: PolicyName
    chunk: int
    """Prompt tokens that a step of policy `chunked` reads."""
    interruptible: bool
    """Long prompts are read in a context of their own, which steps of others may interrupt."""
    costs: Coefficients
    """What steps cost, as given or as calibrated."""


# To the worker


class Submit(msgspec.Struct, frozen=True, tag="submit", array_like=True):
    """Answer a prompt."""

    id: int
    prompt: bytes
    """Token ids as 32-bit little-endian integers."""
    max_new_tokens: int
    sampling: SamplingParameters
    top_logprobs: int | None = None
    """How many likeliest tokens to report beside each token; None reports no log-probabilities."""
    client: str | None = None
    """Who asks, for fairness between clients."""
    gap_target_s: float | None = None
    """Longest gap that its reader should see; None for the engine's."""
    background: bool = False
    """Gets only what others leave."""

    @property
    def tokens(self) -> Tokens:
        """The prompt's token ids, shape [n]."""
        return np.frombuffer(self.prompt, dtype="<i4").astype(np.int32, copy=False)


class Cancel(msgspec.Struct, frozen=True, tag="cancel", array_like=True):
    """Forget a request and free its cells."""

    id: int


class Configure(msgspec.Struct, frozen=True, tag="configure", array_like=True):
    """Change how steps are planned, from the next one on."""

    policy: PolicyName
    chunk: int | None
    """Prompt tokens that a step of policy `chunked` reads; None for this hardware's default."""
    gap_target_s: float


class CacheCommand(msgspec.Struct, frozen=True, tag="cache", array_like=True):
    """Tell what is remembered, after changing it if that is wanted."""

    number: int
    """Stands in the answer too."""
    action: CacheAction
    entry: str | None = None
    """Which entry, or the beginning of its id; None for all."""


class SetBudgets(msgspec.Struct, frozen=True, tag="set_budgets", array_like=True):
    """Change how much may be remembered outside the cells."""

    memory_bytes: int | None
    """None leaves it as it is; so it does below."""
    disk_bytes: int | None


ToWorker = Submit | Cancel | Configure | CacheCommand | SetBudgets

# From the worker


class Loading(msgspec.Struct, frozen=True, tag="loading", array_like=True):
    """The model is being loaded."""

    share: float
    """0 to 1."""


class Ready(msgspec.Struct, frozen=True, tag="ready", array_like=True):
    """The model is loaded."""

    model: ModelInfo
    load_s: float
    """Time that the library took for model and context."""


class LoadFailed(msgspec.Struct, frozen=True, tag="load_failed", array_like=True):
    """The model cannot be loaded; the worker ends."""

    reason: str


class CacheReply(msgspec.Struct, frozen=True, tag="cache_reply", array_like=True):
    """The answer to a `CacheCommand`."""

    number: int
    found: bool
    """There is such an entry, and only one."""
    entries: list[CacheEntry]
    figures: CacheFigures


class Report(msgspec.Struct, frozen=True, tag="report", array_like=True, omit_defaults=True):
    """What one library call, or the border before it, brought."""

    at_s: float
    """When it was done."""
    admitted: list[int] = []
    """Requests that were given KV cells, for the first time or again."""
    restored: list[Restored] = []
    """Requests whose beginning did not have to be prefilled."""
    preempted: list[int] = []
    """Background requests that gave their KV cells up, and wait for new ones."""
    raised: list[tuple[int, float]] = []
    """Answers whose gap target can't be kept, because a step alone takes longer, or can again: request, possible target
    in s, or 0."""
    tokens: list[tuple[int, int, Logprobs | None]] = []
    """New tokens of answers: request, token, log-probabilities if wanted."""
    ended: list[tuple[int, EngineEnd, str]] = []
    """Requests whose cells are free again: request, why, and the error's text if it failed."""
    call: Call | None = None
    """The library call; None at a border, after a failure, and where steps are not to be recorded."""


class LearnedCosts(msgspec.Struct, frozen=True, tag="learned_costs", array_like=True):
    """What the cost model has learned, sent now and then when there is nothing to do."""

    costs: Coefficients


FromWorker = Loading | Ready | LoadFailed | Report | LearnedCosts | CacheFigures | CacheReply
