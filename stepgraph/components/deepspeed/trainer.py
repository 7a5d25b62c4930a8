"""A trainer on DeepSpeed: GRPO with any stage of ZeRO, in this process or as one of several ranks.

DeepSpeed is started by the first update or load. Until then the policy is a plain model: a run that only samples pays
for no optimizer. Afterwards all that DeepSpeed made of it belongs to the policy's place.

Every rank gets every rollout and trains on its part of them. What it makes of it is scaled so that the update is the
one that a single rank would make. To read, save and load weights is work that the ranks do together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from stepgraph.components.deepspeed.start import built
from stepgraph.components.deepspeed.storages import StoragePark, tensors_in
from stepgraph.components.torch.model import named_weights
from stepgraph.components.torch.policy import PolicyTrainer, Settings
from stepgraph.components.torch.residency import Residency, park_folder
from stepgraph.errors import ConfigError, RunError, did_you_mean
from stepgraph.runtime.contract import Context, Rollout, Shared

FOLDER, TAG = "deepspeed", "state"  # where in a checkpoint DeepSpeed's own is
DTYPES = ("float32", "bfloat16")
BUCKET = 500_000_000  # DeepSpeed's own; it allocates that much for a model of any size, and a move would carry it along


class DeepSpeedTrainer(PolicyTrainer):
    """Trains a transformers model on scored rollouts. ``places`` says where the policy starts."""

    ranks = True

    def __init__(
        self,
        shared: Shared,
        *,
        stage: int = 1,
        dtype: str | None = None,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        clip_grad: float = 1.0,
        micro_batch: int = 256,
        epochs: int = 1,
        clip: float = 0.2,
        kl: float = 0.0,
        temperature: float = 1.0,
        config: Mapping[str, Any] | None = None,
        park: str | None = None,
        policy: str = "policy",
        places: Mapping[str, str] | None = None,
    ) -> None:
        self._stage, self._dtype = _stage(stage), _dtype(dtype or str(shared.model.get("dtype", "float32")))
        self._shared = shared
        numbers = (lr, tuple(betas), weight_decay, clip_grad, micro_batch, epochs, clip, kl, temperature)
        super().__init__(shared, Settings(*numbers), policy)
        self._model.to(getattr(torch, self._dtype))
        self._config: dict[str, Any] = {**self._settings(), **(config or {})}
        self._engine: Any = None
        self._park = StoragePark(policy, self._tensors, self._device, park_folder(shared.run_dir, park))
        self._places = Residency("trainer", {policy: self._park}, places)

    def save(self, ctx: Context) -> dict[str, str]:
        """Write a checkpoint: DeepSpeed's own, and beside it the model as transformers loads it."""
        self._must_be_ready("save")
        engine = self._started()
        with ctx.checkpoint() as folder:
            distributed.barrier()  # the first rank makes the folder, and may be late
            state = {"version": self._version, "rng": torch.get_rng_state()}
            engine.save_checkpoint(str(folder / FOLDER), tag=TAG, client_state=state)
            weights = {name: tensor.cpu() for name, tensor in self._tensors_of()}
            if self._shared.rank == 0:
                self._model.save_pretrained(folder, state_dict=weights)
                self._tokenizer.save_pretrained(folder)
        return {"ckpt": str(folder)}

    def load(self, folder: str | Path) -> None:
        """Go on from a checkpoint, wherever the policy is; it stays there."""
        place = self._park.place
        if place == "none":
            raise RunError(f"trainer.load has nowhere to put '{self._policy}': it is at 'none'; reload it first")
        self._places.move({self._policy: "device"})
        state = self._loaded(Path(folder))
        self._version = int(state["version"])
        torch.set_rng_state(state["rng"])
        self._park.filled()
        self._places.move({self._policy: place})

    def _loaded(self, folder: Path) -> Mapping[str, Any]:
        whole = folder / FOLDER
        if not (whole / TAG).is_dir():
            raise RunError(f"no checkpoint to load: '{whole}' is missing; name a folder that trainer.save wrote")
        try:
            found, state = self._started().load_checkpoint(str(whole), tag=TAG)
        except Exception as error:  # a file cut short, another model or another number of ranks fail in many ways
            self._park.lost = True
            cause = " ".join(str(error).split())[:200]
            raise RunError(
                f"the checkpoint '{whole}' cannot be loaded ({type(error).__name__}: {cause}); use an earlier one, or "
                "the model and the number of ranks that it was saved with"
            ) from error
        if found is None:  # DeepSpeed's word for a checkpoint that is not there
            raise RunError(f"no checkpoint to load: DeepSpeed finds none in '{whole}'")
        return state

    def _settings(self) -> dict[str, Any]:
        bucket = min(BUCKET, sum(parameter.numel() for parameter in self._model.parameters()))
        return {
            "train_micro_batch_size_per_gpu": self._set.micro_batch,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": self._set.clip_grad,
            "zero_optimization": {"stage": self._stage, "reduce_bucket_size": bucket},
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": self._dtype == "bfloat16"},
            "steps_per_print": 1 << 30,
        }

    def _started(self) -> Any:
        if self._engine is None:
            options: dict[str, Any] = {
                "lr": self._set.lr,
                "betas": self._set.betas,
                "weight_decay": self._set.weight_decay,
            }
            optimizer = torch.optim.AdamW(self._model.parameters(), **options)
            self._engine = built(self._model, optimizer, self._config, self._device, self._shared)
        return self._engine

    def _pass(self, rollouts: Sequence[Rollout], advantage: Tensor, rows: Sequence[int]) -> dict[str, float]:
        engine, parts = self._started(), self._own(rows)
        seen = []
        for number, (part, weight) in enumerate(parts, start=1):
            engine.set_gradient_accumulation_boundary(number == len(parts))
            loss, values = self._objective(engine, part, rollouts, advantage)
            engine.backward(loss * weight * self._shared.ranks)  # DeepSpeed takes the mean over ranks
            seen.append({key: value * weight for key, value in values.items()})
        plain = self._plain_norm(engine)
        engine.step()
        norm = self._finite(float(engine.get_global_grad_norm() or plain))
        return self._over_ranks({key: sum(one[key] for one in seen) for key in seen[0]}) | {"policy/grad_norm": norm}

    def _own(self, rows: Sequence[int]) -> list[tuple[Sequence[int], float]]:
        """This rank's part of the rows, in micro batches and with their weights.

        Each is work that all ranks do together, so who has fewer does one row more often, for nothing.
        """
        rank, ranks = self._shared.rank, self._shared.ranks
        parts = self._parts(rows[rank * len(rows) // ranks : (rank + 1) * len(rows) // ranks])
        most = -(-len(rows) // ranks)  # rows of the rank that has the most
        spare = -(-most // self._set.micro_batch) - len(parts)
        return [*((part, 1.0) for part in parts), *[(rows[:1], 0.0)] * spare]

    def _over_ranks(self, values: Mapping[str, float]) -> dict[str, float]:
        """The sums of what each rank saw of its part."""
        sums = torch.tensor(list(values.values()), dtype=torch.float64, device=self._device)
        distributed.all_reduce(sums)
        return dict(zip(values, sums.tolist(), strict=True))

    def _plain_norm(self, engine: Any) -> float:
        """The gradient's norm where ZeRO and its own reckoning are not in use."""
        gradients = [p.grad for p in self._model.parameters() if p.grad is not None]
        plain = isinstance(engine.optimizer, torch.optim.AdamW) and gradients
        return float(torch.nn.utils.get_total_norm(gradients)) if plain else 0.0

    def _finite(self, norm: float) -> float:
        if not isfinite(norm):
            self._park.lost = True  # DeepSpeed has stepped: what it holds is no policy
            raise RunError(
                f"trainer.train met a gradient of norm {norm}, and the policy is spoilt; go on from a checkpoint, "
                "with a lower trainer.lr"
            )
        return norm

    def _tensors_of(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in named_weights(self._model).items():
            yield name, self._whole(parameter)

    def _whole(self, parameter: Any) -> Tensor:
        """A parameter, put together from its partitions where ZeRO has divided it, wherever the policy is."""
        if not hasattr(parameter, "ds_tensor"):
            return parameter.detach() if self._park.place == "device" else self._park.parked(parameter.detach())
        if self._park.place != "device":
            flat = self._of_all(self._park.parked(parameter.ds_tensor.detach()))
            return flat[: parameter.ds_numel].view(parameter.ds_shape)
        with _gathered(parameter):
            return parameter.detach().clone()

    def _of_all(self, part: Tensor) -> Tensor:
        """The partitions of all ranks, one after the other."""
        if self._shared.ranks == 1:
            return part
        mine = part.to(self._device)
        parts = [torch.empty_like(mine) for _ in range(self._shared.ranks)]
        distributed.all_gather(parts, mine)
        return torch.cat(parts)

    def _tensors(self) -> Iterator[Tensor]:
        """All that the policy's place covers."""
        yield from named_weights(self._model).values()
        if self._reference is not None:
            yield from named_weights(self._reference).values()
        if self._engine is not None:
            roots = [list(self._model.parameters()), self._engine.optimizer]
            yield from tensors_in(roots, "deepspeed")


def _gathered(parameter: Any) -> Any:
    from deepspeed.runtime.zero import GatheredParameters

    return GatheredParameters([parameter])


def _stage(stage: int) -> int:
    if stage not in (0, 1, 2, 3):
        raise ConfigError(f"trainer.stage={stage} is no stage of ZeRO; it may be 0, 1, 2 or 3")
    return stage


def _dtype(dtype: str) -> str:
    if dtype not in DTYPES:
        raise ConfigError(f"trainer.dtype={dtype}{did_you_mean(dtype, DTYPES)}; it may be {' or '.join(DTYPES)}")
    return dtype
