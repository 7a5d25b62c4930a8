"""What every rollout engine does alike: read prompts, stamp answers, evaluate, and refuse what cannot go well.

An engine of a stack adds how it samples and how it takes weights; what a user sees stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from time import perf_counter
from typing import Any

from stepgraph.components.torch.model import build_tokenizer, encode
from stepgraph.components.torch.residency import Residency
from stepgraph.components.torch.sampler import Answer
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.data.check import answer_tokens
from stepgraph.errors import ConfigError, RunError
from stepgraph.hooks import gather, hooks_of, slots
from stepgraph.runtime.contract import Context, Prompt, Rollout, Shared, Stream, Weights
from stepgraph.styles import Making

APART = 1 << 20  # between the seeds of two batches of one step, so that no two calls draw the same numbers
FAR = 1 << 40  # and between those of two engines that share a batch out


class RolloutEngine:
    """Generates and evaluates. A subclass sets ``_places`` and gives ``_sample`` and ``_copy``.

    Several may share a batch out. Where ``by_prompt`` says that an answer depends on no more than the seed and its
    prompt, they give what one would; else each draws numbers of its own.
    """

    asks = ("data", "rewards")  # evaluate scores held-out prompts
    ranks, divides, undivided = True, ("generate",), ("filter",)  # a filter takes batches until one is full
    by_prompt = False
    _places: Residency

    def __init__(
        self,
        shared: Shared,
        *,
        group: int,
        temperature: float,
        max_new_tokens: int | None,
        weights: str,
        kv: str,
    ) -> None:
        _check(group, temperature, max_new_tokens)
        self._spec = ModelSpec.of(shared.model)
        self._tokenizer, self._chat = build_tokenizer(self._spec), self._spec.chat
        self._weights, self._kv_name = weights, kv
        self._group, self._temperature = group, temperature
        self._max_new = answer_tokens(shared.data) if max_new_tokens is None else max_new_tokens
        self._version, self._rank, self._ranks = -1, shared.rank, shared.ranks
        self._read = lru_cache(maxsize=1 << 14)(self._encode)
        self._say = lru_cache(maxsize=1 << 14)(self._decode)

    @slots("rollout", "reward", "filter")
    def generate(self, ctx: Context, prompts: Stream) -> dict[str, list[Rollout]]:
        """Take a batch of prompts and sample ``group`` answers to each. Of several engines each takes its part."""
        self._must_be_ready("generate")
        if self._ranks == 1:
            return self._generated(ctx, prompts)
        part = Part(prompts.take(), self._rank, self._ranks)
        return self._generated(ctx, part) if part.batch else {"rollouts": []}

    def _generated(self, ctx: Context, prompts: Stream) -> dict[str, list[Rollout]]:
        start, hooks, seed = perf_counter(), hooks_of(ctx), self._own(ctx.seed)
        rollouts = gather(
            hooks,
            prompts,
            lambda asked, attempt: self._made(hooks.get("rollout"), asked, seed + attempt * APART),
            lambda made: ctx.components["rewards"].score(ctx, made)["rewards"],
        )
        total = sum(len(r.tokens) for r in rollouts)
        ctx.log(
            **{
                "rollout/length": total / max(1, len(rollouts)),
                "perf/generate_tokens_per_s": total / (perf_counter() - start),
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

    def _sample(self, prompts: Sequence[Prompt], group: int, temperature: float, seed: int) -> list[Answer]:
        """``group`` answers a prompt, in the order of the prompts; temperature 0 takes the likeliest token."""
        raise NotImplementedError

    def _complete(self, ids: Sequence[int], most: int, temperature: float, seed: int) -> Answer:
        """Continue token ids once, by at most so many more."""
        raise RunError(f"{type(self).__name__} cannot continue a text, which the hook of 'rollout' asks of it")

    def _copy(self, source: Weights) -> None:
        """Take the weights, all of them or with an error."""
        raise NotImplementedError

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

    def _own(self, seed: int) -> int:
        return seed if self.by_prompt else seed + self._rank * FAR

    def _made(self, roll: Any, prompts: Sequence[Prompt], seed: int) -> list[Rollout]:
        """The answers to a batch, by the hook where there is one. Each call that it makes draws numbers of its own."""
        if roll is None:
            return self._answer(prompts, self._group, self._temperature, seed)
        seeds = count(seed)
        params = {"temperature": self._temperature, "max_new_tokens": self._max_new}
        making = Making(
            prompts,
            sample=lambda some: self._answer(some, self._group, self._temperature, next(seeds)),
            complete=lambda asked, given: self._continued(asked, {**params, **given}, next(seeds)),
            tokenizer=self._tokenizer,
            group=self._group,
            version=self._version,
            sampling_params=params,
        )
        made: list[Rollout] = roll(making)
        return made

    def _continued(self, asked: str | Sequence[int], params: Mapping[str, Any], seed: int) -> Rollout:
        """One continuation of a text as it is, without a chat template, or of token ids."""
        ids = tuple(encode(self._tokenizer, asked, chat=False) if isinstance(asked, str) else asked)
        answer = self._complete(ids, params["max_new_tokens"], params["temperature"], seed)
        text = self._say(answer.tokens)
        return Rollout(Prompt("", "", 0), ids, answer.tokens, answer.logprobs, text, self._version, group=0)

    def _answer(self, prompts: Sequence[Prompt], group: int, temperature: float, seed: int) -> list[Rollout]:
        answers = self._sample(prompts, group, temperature, seed)
        asked = [prompt for prompt in prompts for _ in range(group)]
        return [self._rollout(prompt, answer) for prompt, answer in zip(asked, answers, strict=True)]

    def _rollout(self, prompt: Prompt, answer: Answer) -> Rollout:
        ids, text, version = self._read(prompt.text), self._say(answer.tokens), self._version
        return Rollout(prompt, ids, answer.tokens, answer.logprobs, text, version, group=prompt.index)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(encode(self._tokenizer, text, self._chat))

    def _decode(self, tokens: tuple[int, ...]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


class Part:
    """One engine's contiguous part of a batch, as the stream of it."""

    batches = cursor = 1

    def __init__(self, batch: list[Prompt], rank: int, ranks: int) -> None:
        self.batch = batch[rank * len(batch) // ranks : (rank + 1) * len(batch) // ranks]

    def take(self) -> list[Prompt]:
        return self.batch

    def seek(self, cursor: int) -> None:
        """There is no other batch to go to."""


def _check(group: int, temperature: float, max_new_tokens: int | None) -> None:
    if group < 1 or (max_new_tokens is not None and max_new_tokens < 1):
        raise ConfigError("engine.group and engine.max_new_tokens must be 1 or more")
    if not temperature > 0:
        raise ConfigError(f"engine.temperature={temperature} samples the same answer again and again; set it above 0")
