"""Samples answers from a model in batches: each prompt is read once, however many answers it gets.

One uniform number a token is drawn ahead for every answer, in the order of the prompts. So what is sampled depends on
the seed and the prompts, and not on how many of them fit into the cache at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stepgraph.components.torch.batch import left, lengths, positions
from stepgraph.components.torch.kv import KvBuffer
from stepgraph.errors import RunError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. ``temperature`` 0 takes the likeliest token. ``eos`` ends an answer, and is part of it."""

    group: int
    max_new: int
    temperature: float
    eos: int | None
    pad: int
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Token ids, and the natural-log probability of each at the sampling temperature."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


@torch.inference_mode()
def sample(model: Any, kv: KvBuffer, prompts: Sequence[Sequence[int]], how: Sampling) -> list[Answer]:
    """``how.group`` answers a prompt, in the order of the prompts."""
    noise = _noise(len(prompts), how)
    answers: dict[int, list[Answer]] = {}
    for chunk in _chunks(model, kv, prompts, how):
        found = _sample_chunk(model, kv, [prompts[i] for i in chunk], noise[chunk].flatten(0, 1), how)
        for place, i in enumerate(chunk):
            answers[i] = found[place * how.group : (place + 1) * how.group]
    return [answer for i in range(len(prompts)) for answer in answers[i]]


def draw(logits: Tensor, noise: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """A token a row and its log-probability: [N, V] logits, [N] uniform numbers -> [N], [N].

    The sum runs in double precision: in single precision the rounding of a large vocabulary is of the size of its
    rarer tokens. The first entry above the number has a probability that is not zero.
    """
    logprobs = (logits.float() / (temperature or 1.0)).log_softmax(-1)
    if temperature == 0:
        token = logprobs.argmax(-1)
    else:
        total = logprobs.exp().double().cumsum(-1)
        token = torch.searchsorted(total, (noise * total[:, -1])[:, None], right=True)[:, 0]
        token = token.clamp(max=logits.shape[-1] - 1)
    return token, logprobs.gather(1, token[:, None])[:, 0]


def _noise(prompts: int, how: Sampling) -> Tensor:
    generator = torch.Generator().manual_seed(how.seed)
    return torch.rand(prompts, how.group, how.max_new, generator=generator, dtype=torch.float64)


def _chunks(model: Any, kv: KvBuffer, prompts: Sequence[Sequence[int]], how: Sampling) -> Iterator[list[int]]:
    """Which prompts go together: those of like length, as many as the cache holds with all of their answers."""
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    while order:
        row = len(prompts[order[0]]) + how.max_new
        fitting = kv.tokens // (row * how.group)
        _must_fit(model, kv, row, fitting, how)
        yield order[:fitting]
        order = order[fitting:]


def _must_fit(model: Any, kv: KvBuffer, row: int, fitting: int, how: Sampling) -> None:
    longest = getattr(model.config, "max_position_embeddings", None) or row
    if row > longest:
        raise RunError(f"a prompt and its answer take {row} tokens, but the model reads {longest}; shorten the prompts")
    if fitting < 1:
        need = f"{how.group} answers to one prompt take {row * how.group} tokens"
        raise RunError(f"{need}, but the KV cache holds {kv.tokens}; set engine.kv_tokens={row * how.group} or more")


def _sample_chunk(
    model: Any, kv: KvBuffer, prompts: Sequence[Sequence[int]], noise: Tensor, how: Sampling
) -> list[Answer]:
    device = kv.storage.device
    noise, mask = noise.to(device), lengths(prompts).to(device)
    cache = kv.lend(len(noise), mask.shape[1] + how.max_new)
    state = _State(model, cache, mask if not bool(mask.all()) else None)
    logits = state.read(left(prompts, how.pad).to(device)).repeat_interleave(how.group, dim=0)
    state.repeat(how.group)
    tokens, logprobs = [], []
    done = torch.zeros(len(noise), dtype=torch.bool, device=device)
    for step in range(how.max_new):
        token, logprob = draw(logits, noise[:, step], how.temperature)
        tokens.append(token)
        logprobs.append(logprob)
        done |= token == (-1 if how.eos is None else how.eos)
        if step + 1 == how.max_new or bool(done.all()):
            break
        logits = state.read(token[:, None])
    return _cut(torch.stack(tokens, 1).tolist(), torch.stack(logprobs, 1).tolist(), how.eos)


class _State:
    """A model in the middle of its sequences: the cache, and the mask where prompts are padded."""

    def __init__(self, model: Any, cache: Any, mask: Tensor | None) -> None:
        self._model, self._cache, self._mask, self._fresh = model, cache, mask, True

    def read(self, ids: Tensor) -> Tensor:
        """Feed tokens [N, L]; the logits [N, V] of the next one."""
        if self._mask is not None and not self._fresh:
            self._mask = torch.cat([self._mask, self._mask.new_ones(ids.shape)], dim=1)
        self._fresh = False
        places = None if self._mask is None else positions(self._mask)[:, -ids.shape[1] :]
        out: Any = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=places,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = out.logits[:, -1]
        return logits

    def repeat(self, times: int) -> None:
        self._cache.repeat(times)
        self._mask = None if self._mask is None else self._mask.repeat_interleave(times, dim=0)


def _cut(tokens: list[list[int]], logprobs: list[list[float]], eos: int | None) -> list[Answer]:
    ends = [row.index(eos) + 1 if eos in row else len(row) for row in tokens]
    rows = zip(tokens, logprobs, ends, strict=True)
    return [Answer(tuple(row[:end]), tuple(logs[:end])) for row, logs, end in rows]
