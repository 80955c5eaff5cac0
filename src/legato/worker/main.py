"""The engine worker process: `python -m legato.worker.main DESCRIPTOR`.

DESCRIPTOR is its end of a socket pair with the server. The first message is its settings; then it loads the model and
runs the engine's loop. It lives no longer than its server: when the other end closes, for whatever reason, it ends.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from pathlib import Path

from legato.engine.context import Context, ContextSettings
from legato.engine.library import build_info
from legato.engine.model import Model
from legato.errors import LegatoError
from legato.kv.manager import KvManager
from legato.runtime.loop import EngineLoop, LoopLimits
from legato.scheduling.costs import CostModel
from legato.wire.messages import Configure, EngineSettings, LoadFailed, Loading, ModelInfo, Ready
from legato.worker.cache_setup import choose_limits, open_store
from legato.worker.calibration import calibrate
from legato.worker.llama_engine import LlamaEngine
from legato.worker.mailbox import SocketMailbox
from legato.worker.prefill_context import make_prefill_context
from legato.worker.sizing import (
    choose_context,
    choose_parallel,
    default_chunk,
    default_flash_attention,
    default_threads,
    flash_tile,
    kv_bytes_per_token,
)
from legato.worker.system_clock import SystemClock

logger = logging.getLogger(__name__)


def main() -> None:
    """Run a worker until its server is gone."""
    # Ctrl-C reaches the whole process group, and a service manager's SIGTERM the whole service; when the worker ends is
    # the server's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mailbox = SocketMailbox(int(sys.argv[1]))
    try:
        settings = mailbox.receive_settings()
        logging.basicConfig(level=settings.log_level, format="%(levelname)s %(name)s: %(message)s")
        try:
            loop = _load(mailbox, settings)
        except LegatoError as error:
            mailbox.send(LoadFailed(str(error)))
            sys.exit(1)
        try:
            loop.run()
        except ConnectionError:
            loop.close()
            raise
    except ConnectionError:
        sys.exit(0)  # the server is gone


def _load(mailbox: SocketMailbox, settings: EngineSettings) -> EngineLoop:
    begun = time.monotonic()
    reported = 0.0

    def report(share: float) -> None:
        """Tell the share that is loaded in steps of at least 5 %."""
        nonlocal reported
        if share - reported >= 0.05:
            reported = share
            mailbox.send(Loading(share))

    model = Model(Path(settings.model_path), gpu_layers=settings.gpu_layers, on_progress=report)
    if not model.can_generate:
        raise LegatoError(f"{model.path.name} does not write text from a prompt; choose a model that does.")
    context_tokens = choose_context(settings.context_tokens, model.context_length)
    bytes_per_token = kv_bytes_per_token(model, settings.kv_type_k, settings.kv_type_v)
    parallel = choose_parallel(settings.parallel, context_tokens * bytes_per_token)
    threads = settings.threads or default_threads()
    on_gpu = build_info().can_offload and settings.gpu_layers != 0
    chunk = default_chunk(on_gpu=on_gpu)
    flash_attention = settings.flash_attention or default_flash_attention(
        settings.policy, settings.kv_type_v, on_gpu=on_gpu
    )
    context_settings = ContextSettings(
        sequences=parallel,
        cells_per_sequence=context_tokens,
        batch_tokens=settings.batch_tokens,
        threads=threads,
        threads_prefill=settings.threads_prefill or threads,
        flash_attention=flash_attention,
        kv_type_k=settings.kv_type_k,
        kv_type_v=settings.kv_type_v,
    )
    context = Context(model, context_settings)
    # The library can't be interrupted while a GPU computes, and other policies interrupt nothing.
    is_wanted = settings.policy == "adaptive" if settings.interruptible is None else settings.interruptible
    prefill_context = make_prefill_context(model, context_settings, context) if is_wanted and not on_gpu else None
    engine = LlamaEngine(
        context,
        prefill_context,
        model.vocabulary,
        batch_tokens=settings.batch_tokens,
        joined_calls=settings.joined_calls,
    )
    limits = choose_limits(settings, context)
    store = open_store(settings, context_settings, model, limits.disk_bytes)
    tile = flash_tile(flash_attention, on_gpu=on_gpu)
    costs = settings.costs or calibrate(context, flash_tile=tile, batch_tokens=settings.batch_tokens)
    info = ModelInfo(
        description=model.description,
        parameters=model.parameters,
        size_bytes=model.size_bytes,
        context_tokens=context.cells_per_sequence,
        parallel=parallel,
        threads=threads,
        threads_prefill=context_settings.threads_prefill,
        flash_attention=flash_attention,
        policy=settings.policy,
        chunk=settings.chunk or chunk,
        interruptible=prefill_context is not None,
        costs=costs,
    )
    cost_model = CostModel(costs)
    clock = SystemClock()
    loop = EngineLoop(
        clock=clock,
        mailbox=mailbox,
        engine=engine,
        kv=KvManager(context, clock, cost_model, bytes_per_token=bytes_per_token, limits=limits, store=store),
        costs=cost_model,
        configuration=Configure(settings.policy, settings.chunk, settings.gap_target_s),
        limits=LoopLimits(
            step_tokens=settings.batch_tokens,
            default_chunk=chunk,
            background_wait_s=settings.background_wait_s,
            interruptible=prefill_context is not None,
            joined_calls=settings.joined_calls,
            record_calls=settings.record_calls,
        ),
    )
    mailbox.send(Ready(info, time.monotonic() - begun))
    return loop


if __name__ == "__main__":
    main()
