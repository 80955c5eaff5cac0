"""A bare loop over the library: what the same build does with no server around it.

Run as a process of its own; it takes one JSON command a line and answers with one JSON line.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from itertools import pairwise
from typing import Any

from llama_cpp import llama_cpp as lib


class BareLoop:
    """One context, one batch, greedy samplers: decode, sample, decode."""

    def __init__(self, path: str, sequences: int, context: int, threads: int) -> None:
        self._log = lib.llama_log_callback(lambda _level, _text, _data: None)
        lib.llama_log_set(self._log, ctypes.c_void_p(0))
        lib.llama_backend_init()
        begun = time.perf_counter()
        self._model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = sequences * context, sequences, False
        params.n_batch = params.n_ubatch = 512
        params.n_outputs_max = 64
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.no_perf = True
        self._context = lib.llama_init_from_model(self._model, params)
        self.load_s = time.perf_counter() - begun
        self._memory = lib.llama_get_memory(self._context)
        self._vocabulary = lib.llama_model_get_vocab(self._model)
        self._batch = lib.llama_batch_init(512, 0, 1)

    def run(self, streams: int, prompt: list[int], tokens: int, chunk: int) -> dict[str, Any]:
        """Read the prompt in every stream, then decode all of them together."""
        samplers = [self._greedy() for _ in range(streams)]
        begun = time.perf_counter()
        last = [self._read(stream, prompt, chunk, samplers[stream]) for stream in range(streams)]
        first_token_s = (time.perf_counter() - begun) / streams
        times = [time.perf_counter()]
        for position in range(len(prompt), len(prompt) + tokens - 1):
            self._fill([(stream, last[stream], position, True) for stream in range(streams)])
            lib.llama_decode(self._context, self._batch)
            last = [lib.llama_sampler_sample(samplers[s], self._context, s) for s in range(streams)]
            times.append(time.perf_counter())
        for stream in range(streams):
            lib.llama_memory_seq_rm(self._memory, stream, -1, -1)
            lib.llama_sampler_free(samplers[stream])
        gaps = [b - a for a, b in pairwise(times)]
        return {
            "first_token_s": first_token_s,
            "tokens_per_s": streams * (tokens - 1) / (times[-1] - times[0]),
            "gap_p50_s": statistics.median(gaps),
        }

    def _greedy(self) -> Any:
        """The chain that a server has for temperature 0 and no end token."""
        chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        size = lib.llama_vocab_n_tokens(self._vocabulary)
        ends = [token for token in range(size) if lib.llama_vocab_is_eog(self._vocabulary, token)]
        biases = (lib.llama_logit_bias * len(ends))(*(lib.llama_logit_bias(t, float("-inf")) for t in ends))
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_logit_bias(size, len(ends), biases))
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_greedy())
        return chain

    def _read(self, stream: int, prompt: list[int], chunk: int, sampler: Any) -> int:
        for start in range(0, len(prompt), chunk):
            part = prompt[start : start + chunk]
            last = len(prompt) - 1
            self._fill([(stream, token, start + i, start + i == last) for i, token in enumerate(part)])
            lib.llama_decode(self._context, self._batch)
        return int(lib.llama_sampler_sample(sampler, self._context, len(part) - 1))

    def _fill(self, rows: list[tuple[int, int, int, bool]]) -> None:
        batch = self._batch
        for i, (stream, token, position, wanted) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = stream
            batch.logits[i] = wanted
        batch.n_tokens = len(rows)


def main() -> None:
    """Answer commands until standard input ends."""
    loop = BareLoop(sys.argv[1], *(int(value) for value in sys.argv[2:5]))
    print(json.dumps({"load_s": loop.load_s}), flush=True)
    for line in sys.stdin:
        print(json.dumps(loop.run(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
