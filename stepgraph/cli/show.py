"""``stepgraph show -o FILE``: a picture of the plan; with a run directory, of what was planned and measured there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from stepgraph.cli.inputs import plan_of
from stepgraph.cli.job import Job
from stepgraph.cli.plugins import plugins
from stepgraph.cli.schema import Config
from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.views.dot import dot
from stepgraph.views.html import html
from stepgraph.views.mermaid import mermaid
from stepgraph.views.rundir import read_plan
from stepgraph.views.scene import Scene
from stepgraph.views.scene_json import scene_json
from stepgraph.views.scene_pair import scene_of_two
from stepgraph.views.scene_plan import scene_of
from stepgraph.views.scene_run import measure
from stepgraph.views.svg import svg

FORMATS: dict[str, Callable[[Scene], str]] = {
    ".html": html,
    ".svg": svg,
    ".mmd": mermaid,
    ".dot": dot,
    ".json": scene_json,
}


PLUGINS = "plugins"


def show(job: Job) -> int:
    """Draw into the file that is asked for; nothing else is left behind."""
    if job.names == (PLUGINS,):
        return plugins()
    file = _file(job)
    draw = _format(file)
    scene = _pair(job, file) if job.sides else _scene(job)
    _write(file, draw(scene))
    pictures = f"{len(scene.pictures)} pictures" if file.suffix in (".html", ".json") else scene.picture.title
    print(f"{file}: {scene.title}; {pictures}")
    return 0


def _file(job: Job) -> Path:
    if "-o" not in job.options:
        raise ConfigError(f"show wants a file to draw into: -o FILE, which ends in {', '.join(FORMATS)}")
    file = Path(job.options["-o"])
    if file.is_dir():
        raise ConfigError(f"-o {file}: is a folder; name a file in it")
    if not file.parent.is_dir():
        raise ConfigError(f"-o {file}: there is no folder '{file.parent}'; make it, or write elsewhere")
    return file


def _format(file: Path) -> Callable[[Scene], str]:
    found = FORMATS.get(file.suffix)
    if found is None:
        hint = did_you_mean(file.suffix, FORMATS)
        raise ConfigError(f"-o {file}: there is no picture format '{file.suffix}'{hint} (known: {', '.join(FORMATS)})")
    return found


def _scene(job: Job) -> Scene:
    if len(job.names) > 1:
        raise ConfigError(f"show takes one run directory, got {', '.join(job.names)}")
    if not job.names:
        return scene_of(plan_of(job), job.config.step)
    folder = Path(job.names[0])
    placement = str(read_plan(folder).get("placement", ""))
    plan = _plan_of_run(job, folder, placement)
    names = tuple(phase.name for phase in plan.graph.step)
    return replace(scene_of(plan, job.config.step), measured=measure(folder, names, plan.first, plan.steps))


def _pair(job: Job, file: Path) -> Scene:
    """Two sets of settings in one picture that turns from one to the other."""
    from stepgraph.cli.app import job_of

    if len(job.sides) != 2 or job.names:
        raise ConfigError(f"show draws one plan or two: show -o {file} [COMMON] -- A -- B")
    if file.suffix != ".html":
        raise ConfigError(f"-o {file}: two plans are drawn as a page: -o {file.with_suffix('.html')}")
    a, b = (job_of([*job.overrides, *words]) for words in job.sides)
    left, right = (" ".join(words) or "as it is" for words in job.sides)
    return scene_of_two((plan_of(a), plan_of(b)), (left, right), (a.config.step, b.config.step))


def _plan_of_run(job: Job, folder: Path, placement: str) -> Plan:
    """The plan of the run in a directory: from its own configuration, or from the words given, where it has none."""
    file = folder / "config.yaml"
    if not file.is_file():
        return plan_of(job)
    try:
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.load(file)))
    except (OmegaConfBaseException, OSError, YAMLError) as error:
        raise ConfigError(f"{folder}: cannot read what was run there: {' '.join(str(error).split())}") from error
    assert isinstance(config, Config)
    return plan_of(replace(job, config=replace(config, step=job.config.step), choices={"placement": placement}))


def _write(file: Path, content: str) -> None:
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"-o {file}: cannot write ({error.strerror})") from error
