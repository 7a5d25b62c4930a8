"""The embedded rollout engine: a copy of the policy that samples answers, in this process, on any machine.

It has weights of its own, so that a sync is a real copy and its absence shows, and a KV cache of its own, so that
freeing it frees something. It keeps nothing that is derived from the weights from one call to the next: the cache is
written anew by each call, so a sync has nothing else to reset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from time import perf_counter

import torch
from torch import Tensor

from stepgraph.components.torch.kv import KvBuffer
from stepgraph.components.torch.model import build_model, build_tokenizer, encode, named_weights, pick_device
from stepgraph.components.torch.park import Park
from stepgraph.components.torch.residency import Residency, park_folder
from stepgraph.components.torch.sampler import Answer, Sampling, sample
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.components.torch.threads import set_threads
from stepgraph.data.check import answer_tokens
from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.contract import Context, Prompt, Rollout, Shared, Stream, Weights

SHOWN = 3  # how many wrong tensors an error names


class TorchEngine:
    """Generates and evaluates with transformers' models. ``places`` says where its two resources start."""

    asks = ("data", "rewards")  # evaluate scores held-out prompts

    def __init__(
        self,
        shared: Shared,
        *,
        group: int = 8,
        temperature: float = 1.0,
        max_new_tokens: int | None = None,
        kv_tokens: int = 4096,
        park: str | None = None,
        weights: str = "engine",
        kv: str = "kv",
        places: Mapping[str, str] | None = None,
    ) -> None:
        _check(group, temperature, max_new_tokens, kv_tokens)
        spec, device = ModelSpec.of(shared.model), pick_device(shared.devices)
        set_threads(spec.threads)
        self._model = build_model(spec, shared.seed, device).requires_grad_(False)
        self._tokenizer, self._chat = build_tokenizer(spec), spec.chat
        self._weights, self._names = weights, named_weights(self._model)
        self._kv_name, self._kv = kv, KvBuffer(self._model.config, kv_tokens, self._model.dtype, device)
        self._group, self._temperature = group, temperature
        self._max_new = answer_tokens(shared.data) if max_new_tokens is None else max_new_tokens
        self._version = -1
        folder = park_folder(shared.run_dir, park)
        parks = {
            weights: Park(weights, lambda: self._names, device, folder),
            kv: Park(kv, lambda: {"kv": self._kv.storage}, device, folder),
        }
        self._places = Residency("engine", parks, places)
        self._read = lru_cache(maxsize=1 << 14)(self._encode)
        self._say = lru_cache(maxsize=1 << 14)(self._decode)

    def generate(self, ctx: Context, prompts: Stream) -> dict[str, list[Rollout]]:
        """Take a batch of prompts and sample ``group`` answers to each."""
        self._must_be_ready("generate")
        start = perf_counter()
        rollouts = self._answer(prompts.take(), self._group, self._temperature, ctx.seed)
        count = sum(len(r.tokens) for r in rollouts)
        ctx.log(
            **{
                "rollout/length": count / max(1, len(rollouts)),
                "perf/generate_tokens_per_s": count / (perf_counter() - start),
            }
        )
        return {"rollouts": rollouts}

    def evaluate(self, ctx: Context) -> dict[str, dict[str, float]]:
        """Answer the held-out prompts greedily, and let the rewards component score them."""
        self._must_be_ready("evaluate")
        rollouts = self._answer(ctx.components["data"].eval_prompts(), 1, 0.0, ctx.seed)
        if not rollouts:
            raise RunError("engine.evaluate has no held-out prompts; set data.eval_size to 1 or more")
        rewards = ctx.components["rewards"].score(ctx, rollouts)["rewards"]
        mean = sum(rewards) / len(rewards)
        ctx.log(**{"eval/reward": mean})
        return {"scores": {"reward": mean, "version": self._version, "n": len(rewards)}}

    def offload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        """Take resources off the device. Returns the bytes that were really freed, by resource."""
        return self._move(moves)

    def reload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        """Bring resources back. Returns the bytes that really came back, by resource."""
        return self._move(moves)

    def sync(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        """Copy the policy's weights into this engine's own, and take on their version."""
        for resource, source in weights.items():
            self._places.must_be_on_device(resource, "sync")
            self._must_be_weights(resource)
            self._version = -1  # a copy that fails half-way leaves an engine that refuses to generate
            self._copy(source)
            self._places[resource].filled()
            self._version = source.version

    def version(self, resource: str) -> int:
        """The version of the weights that the engine samples with; -1 before any sync."""
        self._must_be_weights(resource)
        return self._version

    @torch.no_grad()
    def _copy(self, source: Weights) -> None:
        wrong, missing = [], dict(self._names)
        for name, tensor in source.tensors():
            mine = missing.pop(name, None)
            if mine is None or mine.shape != tensor.shape:
                wrong.append(_difference(name, mine, tensor))
            else:
                mine.copy_(tensor)
        wrong += [f"{name} is missing" for name in missing]
        if wrong:
            more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
            shown = ", ".join(wrong[:SHOWN])
            raise RunError(
                f"engine.sync got the weights of another model: {shown}{more}; trainer and engine must share one"
            )

    def _move(self, moves: Mapping[str, str]) -> dict[str, int]:
        moved = self._places.move(moves)
        if self._places[self._weights].lost:
            self._version = -1
        return moved

    def _must_be_weights(self, resource: str) -> None:
        if self._places[resource] is not self._places[self._weights]:
            raise RunError(f"'{resource}' holds no weights; the engine's weights are '{self._weights}'")

    def _must_be_ready(self, call: str) -> None:
        self._places.must_be_on_device(self._weights, call)
        self._places.must_be_on_device(self._kv_name, call)
        if self._version < 0:
            raise RunError(f"engine.{call} before any sync: '{self._weights}' has no policy's weights; sync it first")

    def _answer(self, prompts: Sequence[Prompt], group: int, temperature: float, seed: int) -> list[Rollout]:
        tokens = [self._read(prompt.text) for prompt in prompts]
        pad, eos = self._tokenizer.pad_token_id, self._tokenizer.eos_token_id
        how = Sampling(group, self._max_new, temperature, eos, pad, seed % (1 << 63))
        answers = sample(self._model, self._kv, tokens, how)
        asked = [(prompt, ids) for prompt, ids in zip(prompts, tokens, strict=True) for _ in range(group)]
        return [self._rollout(*one, answer) for one, answer in zip(asked, answers, strict=True)]

    def _rollout(self, prompt: Prompt, ids: tuple[int, ...], answer: Answer) -> Rollout:
        text, version = self._say(answer.tokens), self._version
        return Rollout(prompt, ids, answer.tokens, answer.logprobs, text, version, group=prompt.index)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(encode(self._tokenizer, text, self._chat))

    def _decode(self, tokens: tuple[int, ...]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


def _difference(name: str, mine: Tensor | None, theirs: Tensor) -> str:
    if mine is None:
        return f"{name} is unknown here"
    return f"{name} is {tuple(theirs.shape)}, here {tuple(mine.shape)}"


def _check(group: int, temperature: float, max_new_tokens: int | None, kv_tokens: int) -> None:
    if group < 1 or kv_tokens < 1 or (max_new_tokens is not None and max_new_tokens < 1):
        raise ConfigError("engine.group, engine.kv_tokens and engine.max_new_tokens must be 1 or more")
    if not temperature > 0:
        raise ConfigError(f"engine.temperature={temperature} samples the same answer again and again; set it above 0")
