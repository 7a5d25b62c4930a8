"""A rollout engine on vLLM, in this process.

vLLM keeps what it has read of prompts (the prefix cache) under the weights that read it, so a sync that did not drop it
would answer with the policy of before; a drop that fails ends the run. Each answer says which weights made it, and that
is compared with what was synced. Whoever asks, syncs or moves takes a turn: a thread that put the cache away under
another's request would end the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

from stepgraph.components.torch.match import refuse_other_model
from stepgraph.components.torch.model import build_config, named_weights, outline
from stepgraph.components.torch.residency import Residency, park_folder
from stepgraph.components.torch.rollout import RolloutEngine
from stepgraph.components.torch.sampler import Answer
from stepgraph.components.torch.spec import DTYPES
from stepgraph.components.vllm.start import on_cpu, settle_thread, start
from stepgraph.components.vllm.transfer import Arrived, TakesTransfers
from stepgraph.errors import ConfigError, RunError, did_you_mean
from stepgraph.runtime.contract import Context, Prompt, Rollout, Shared, Weights

GIB = 1 << 30


class VllmEngine(TakesTransfers, RolloutEngine):
    """Generates and evaluates with vLLM. ``places`` says where its two resources start."""

    by_prompt = True  # each has a seed of its own

    def __init__(
        self,
        shared: Shared,
        *,
        group: int = 8,
        temperature: float = 1.0,
        max_new_tokens: int | None = None,
        kv_gib: float = 0.0625,
        block_size: int | None = None,
        max_length: int | None = None,
        dtype: str | None = None,
        prefix_cache: bool = True,
        park: str | None = None,
        weights: str = "engine",
        kv: str = "kv",
        places: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            shared, group=group, temperature=temperature, max_new_tokens=max_new_tokens, weights=weights, kv=kv
        )
        _check(kv_gib, dtype)
        config = build_config(self._spec)
        self._shapes = _completed(config)
        cache = int(kv_gib * GIB)
        options = {
            "kv_cache_memory_bytes": cache,
            "block_size": block_size,
            "max_model_len": max_length or -1,
            "enable_prefix_caching": prefix_cache,
            "seed": shared.seed,
        }
        self._dtype, self._turn = dtype or self._spec.dtype, RLock()
        self._llm = start(
            shared.run_dir / "vllm" / str(shared.rank),
            config,
            dtype=self._dtype,
            threads=self._spec.threads,
            **_given(options),
        )
        self._longest = int(self._llm.model_config.max_model_len)
        self._places = self._resources(cache, park_folder(shared.run_dir, park), places)

    def close(self) -> None:
        """End vLLM and free what it holds."""
        self._llm.llm_engine.engine_core.shutdown()

    def _resources(self, cache: int, folder: Any, places: Mapping[str, str] | None) -> _CacheFirst:
        from stepgraph.components.vllm.places import Cache, Copy  # vLLM must be set up before it is imported

        cpu, size = on_cpu(), sum(_numel(shape) for shape in self._shapes.values()) * _width(self._dtype)
        kv = Cache(self._llm, self._kv_name, cache, cpu)
        self._copied = Copy(self._llm, self._weights, size, cpu, cache=kv, folder=folder)
        self._copied.lost = True
        return _CacheFirst("engine", {self._kv_name: kv, self._weights: self._copied}, places)

    def sync(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        """Copy the policy's weights into this engine's own, and take on their version."""
        with self._alone():
            super().sync(ctx, weights)

    def _move(self, moves: Mapping[str, str]) -> dict[str, int]:
        with self._alone():
            return super()._move(moves)

    def _answer(self, prompts: Sequence[Prompt], group: int, temperature: float, seed: int) -> list[Rollout]:
        with self._alone():
            self._must_be_ready("generate")  # another thread may have had its turn since that was asked
            return super()._answer(prompts, group, temperature, seed)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._turn:
            settle_thread()
            yield

    def _sample(self, prompts: Sequence[Prompt], group: int, temperature: float, seed: int) -> list[Answer]:
        tokens = [self._read(prompt.text) for prompt in prompts]
        seeds = [seed_of(seed, prompt.index) for prompt in prompts]
        return self._asked(tokens, seeds, self._max_new, n=group, temperature=temperature)

    def _complete(self, ids: Sequence[int], most: int, temperature: float, seed: int) -> Answer:
        with self._alone():
            self._must_be_ready("generate")
            return self._asked([ids], [seed_of(seed, 0)], most, temperature=temperature)[0]

    def _asked(self, tokens: Sequence[Sequence[int]], seeds: Sequence[int], most: int, **how: Any) -> list[Answer]:
        from vllm import SamplingParams

        self._must_fit(tokens, most)
        eos = self._tokenizer.eos_token_id
        common: dict[str, Any] = {
            "max_tokens": most,
            "logprobs": 0,  # none but the sampled token's own
            "detokenize": False,
            "stop_token_ids": [] if eos is None else [eos],
        }
        params = [SamplingParams(seed=one, **common, **how) for one in seeds]
        found = self._llm.generate([{"prompt_token_ids": list(ids)} for ids in tokens], params, use_tqdm=False)
        return [self._checked(answer) for one in found for answer in sorted(one.outputs, key=lambda a: a.index)]

    def _checked(self, answer: Any) -> Answer:
        made_by = {span.version if hasattr(span, "version") else span["version"] for span in answer.weight_versions}
        if made_by != {str(self._version)}:
            said = ", ".join(sorted(made_by)) or "no version"
            raise RunError(f"vllm says that {said} made an answer, but version {self._version} was synced; sync again")
        tokens = tuple(answer.token_ids)
        scores = zip(tokens, answer.logprobs, strict=True)
        return Answer(tokens, tuple(float(at[token].logprob) for token, at in scores))

    def _must_fit(self, prompts: Sequence[Sequence[int]], most: int) -> None:
        longest = max(map(len, prompts), default=0) + most
        if longest > self._longest:
            raise RunError(
                f"a prompt and its answer take {longest} tokens, but the engine reads {self._longest}; "
                "shorten the prompts, or raise engine.kv_gib or engine.max_length"
            )

    def _copy(self, source: Weights) -> None:
        if isinstance(source, Arrived):
            self._must_have_arrived()
        else:
            self._copied.take(source.tensors, lambda offered: refuse_other_model(offered, self._shapes))
        if not self._llm.reset_prefix_cache():
            raise RunError(
                "engine.sync: vllm could not drop its prefix cache, which holds what the old weights read; "
                "let no request run while a sync does, or set engine.prefix_cache=false"
            )
        self._llm.llm_engine.set_weight_version(str(source.version))


class _CacheFirst(Residency):
    """Moves the KV cache before the weights, as vLLM lets weights go only when the cache is gone."""

    def move(self, moves: Mapping[str, str]) -> dict[str, int]:
        order = [name for name in self._parks if name in moves]
        return super().move({name: moves[name] for name in (*order, *(n for n in moves if n not in order))})


def seed_of(seed: int, index: int) -> int:
    """A prompt's own seed. vLLM numbers the answers on from it, so neighbouring prompts must lie far apart."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")


def _completed(config: Any) -> dict[str, tuple[int, ...]]:
    """Name the architecture where the configuration does not; return the shapes of its weights."""
    model = outline(config)
    config.architectures = config.architectures or [type(model).__name__]
    return {name: tuple(tensor.shape) for name, tensor in named_weights(model).items()}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _numel(shape: Sequence[int]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


def _width(dtype: str) -> int:
    return 4 if dtype == "float32" else 2


def _check(kv_gib: float, dtype: str | None) -> None:
    if not kv_gib > 0:
        raise ConfigError(f"engine.kv_gib={kv_gib} leaves no room for a KV cache; set it above 0")
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"engine.dtype={dtype}{did_you_mean(dtype, DTYPES)}; it may be {', '.join(DTYPES)}")
