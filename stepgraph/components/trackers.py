"""Trackers that people have already: TensorBoard, Weights & Biases, MLflow. Each is imported when a run begins.

What ran before the first step is drawn one step before it, and what ran after the last one with it. A run that goes on
goes on in the tracker, too: its name there is kept in the run directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from stepgraph.errors import ConfigError

BADLY = {"failed": "FAILED", "killed": "KILLED"}
"""Statuses of a run that did not end well, in MLflow's words."""


class Axis:
    """Where a line of numbers is drawn."""

    def __init__(self) -> None:
        self._latest = -1

    def begin(self, config: Mapping[str, Any]) -> int:
        """The first step that will be run."""
        first = int(config["run"]["first"])
        self._latest = first - 1
        return first

    def at(self, step: int | None) -> int:
        self._latest = self._latest if step is None else step
        return self._latest


class TensorBoard:
    """Event files in ``folder`` of the run directory."""

    def __init__(self, *, folder: str = "tensorboard") -> None:
        must_have("tensorboard", "torch", "tensorboard")
        self._folder, self._axis = folder, Axis()

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        first = self._axis.begin(config)
        self._writer = SummaryWriter(str(run_dir / self._folder), purge_step=first or None)

    def log(self, step: int | None, metrics: Mapping[str, Any]) -> None:
        at = self._axis.at(step)
        for name, value in numbers(metrics).items():
            self._writer.add_scalar(name, value, at)
        self._writer.flush()

    def finish(self, status: str) -> None:
        self._writer.close()


class WandB:
    """A run at Weights & Biases. ``settings`` are more of ``wandb.init``'s own."""

    def __init__(
        self,
        *,
        project: str = "stepgraph",
        entity: str | None = None,
        name: str | None = None,
        mode: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        must_have("wandb", "wandb")
        self._options = {"project": project, "entity": entity, "name": name, "mode": mode, **(settings or {})}
        self._axis = Axis()

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        self._axis.begin(config)
        options = {"id": kept(run_dir, "wandb", lambda: uuid4().hex), "resume": "allow", "dir": str(run_dir)}
        given = {key: value for key, value in self._options.items() if value is not None}
        self._run: Any = import_module("wandb").init(
            **{"name": run_dir.name, "config": dict(config), **options, **given}
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int | None, metrics: Mapping[str, Any]) -> None:
        self._run.log({"step": self._axis.at(step), **numbers(metrics)})

    def finish(self, status: str) -> None:
        self._run.finish(exit_code=int(status in BADLY))


class MLflow:
    """A run at MLflow's tracking server, or in its database."""

    def __init__(self, *, experiment: str = "stepgraph", name: str | None = None, uri: str | None = None) -> None:
        must_have("mlflow", "mlflow")
        self._experiment, self._name, self._uri, self._axis = experiment, name, uri, Axis()

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        self._axis.begin(config)
        self._client: Any = import_module("mlflow").MlflowClient(self._uri)
        self._run = kept(run_dir, "mlflow", lambda: self._new(self._name or run_dir.name, config))
        self._client.update_run(self._run, "RUNNING")

    def log(self, step: int | None, metrics: Mapping[str, Any]) -> None:
        at = self._axis.at(step)
        for name, value in numbers(metrics).items():
            self._client.log_metric(self._run, name, value, step=at)

    def finish(self, status: str) -> None:
        self._client.set_terminated(self._run, BADLY.get(status, "FINISHED"))

    def _new(self, name: str, config: Mapping[str, Any]) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self._experiment)
        run = str(self._client.create_run(experiment, run_name=name).info.run_id)
        for key, value in settings({part: said for part, said in config.items() if part != "graph"}):
            self._client.log_param(run, key, value)
        return run


def must_have(tracker: str, *packages: str) -> None:
    """Refuse a tracker whose package is not installed, before anything is started."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ConfigError(f"tracker={tracker} needs {', '.join(missing)}: pip install {' '.join(missing)}")


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that can be drawn."""
    return {name: float(value) for name, value in metrics.items() if isinstance(value, (int, float))}


def settings(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting with its dotted key: parameters can be set once and take no mappings."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from settings(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def kept(run_dir: Path, tracker: str, new: Callable[[], str]) -> str:
    """The run's name with a tracker: the one that it had before it was gone on with, or a new one."""
    file = run_dir / f"{tracker}.id"
    if not file.is_file():
        file.write_text(new() + "\n", encoding="utf-8")
    return file.read_text(encoding="utf-8").strip()
