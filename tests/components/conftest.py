"""Small real components that were built together."""

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from small import DIGITS, Context, tiny

if find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]

CONF = Path(__file__).parents[2] / "conf"
TINY = tiny()


class Loop:
    """Trainer, engine, data and rewards that were built together, and the calls of one GRPO step."""

    def __init__(self, shared, engine, trainer, places):
        from stepgraph.components.torch import TorchEngine, TorchTrainer
        from stepgraph.data import Data, Rewards

        of = {"engine": ("engine", "kv"), "trainer": ("policy",)}
        where = {owner: {name: places[name] for name in names if name in places} for owner, names in of.items()}
        self.shared = shared
        self.engine = TorchEngine(shared, places=where["engine"], **engine)
        self.trainer = TorchTrainer(shared, places=where["trainer"], **trainer)
        self.data, self.rewards = Data(shared, **shared.data), Rewards(shared)
        self.prompts = self.data.stream("prompts")

    def ctx(self, seed=0, step=0):
        return Context(self.shared.run_dir, {"data": self.data, "rewards": self.rewards}, seed, step)

    def sync(self):
        self.engine.sync(self.ctx(), {"engine": self.trainer.weights("policy")})

    def generate(self, seed=0):
        return self.engine.generate(self.ctx(seed), prompts=self.prompts)["rollouts"]

    def train(self, rollouts, rewards=None):
        ctx = self.ctx()
        scored = self.rewards.score(ctx, rollouts)["rewards"] if rewards is None else rewards
        self.trainer.train(ctx, rollouts=rollouts, rewards=scored)
        return ctx.metrics

    def step(self, seed):
        rollouts = self.generate(seed)
        metrics = self.train(rollouts)
        self.sync()
        return metrics


@pytest.fixture
def shared(tmp_path):
    from stepgraph.runtime.contract import Shared

    def make(model=TINY, data=DIGITS, seed=0, name="run"):
        return Shared(model=model, data=data, seed=seed, run_dir=tmp_path / name, devices="cpu")

    return make


@pytest.fixture
def loop(shared):
    def make(engine=None, trainer=None, places=None, **options):
        return Loop(shared(**options), {"group": 4, **(engine or {})}, trainer or {}, places or {})

    return make


@pytest.fixture
def weights():
    """A copy of all the weights of a trainer's policy, or of an engine."""

    def take(component):
        from stepgraph.components.torch.model import named_weights

        return {name: tensor.detach().clone() for name, tensor in named_weights(component._model).items()}

    return take


@pytest.fixture
def same():
    """Whether two sets of named tensors are equal to the last bit."""

    def compare(one, other):
        import torch

        return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)

    return compare


@pytest.fixture
def section():
    """A group's section of the packaged configuration, without its target."""

    def read(group, name):
        from omegaconf import OmegaConf

        found = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml"))
        return SimpleNamespace(target=found.pop("_target_", None), options=found)

    return read
