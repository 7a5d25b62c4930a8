"""The Hydra application behind every command: compose, refuse what is wrong, hand the command a typed job.

Hydra reports errors in its own way and with exit code 1; asked for full errors, it leaves them to us. A command's own
errors are printed inside the job, so that one bad job of a sweep neither hides nor stops the others.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from stepgraph.cli import reader_left, report, schema, search
from stepgraph.cli.arguments import GROUPS, Arguments, adds_key, opened
from stepgraph.cli.closed import refuse_unknown_keys
from stepgraph.cli.commands import COMMANDS
from stepgraph.cli.job import Job
from stepgraph.cli.problems import KNOWN, as_config_error, deleted_nothing, no_such_key
from stepgraph.errors import ConfigError, RunError, StepgraphError

CONFIG = "config"
VERSION_BASE = "1.3"
FULL_ERRORS = "HYDRA_FULL_ERROR"


def launch(arguments: Arguments) -> int:
    """Run a command as a Hydra application; the exit code is the worst of its jobs'."""
    register()
    codes: list[int] = []
    application = hydra.main(config_path=str(search.packaged()), config_name=CONFIG, version_base=VERSION_BASE)
    with ExitStack() as stack:
        sweep = _sweep_folder(arguments, stack)
        stack.enter_context(_in_one_line(arguments.overrides))
        stack.enter_context(_hydra_hears([*arguments.for_hydra(), *sweep]))
        application(_job_function(arguments, codes))()
    return max(codes, default=0)


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the configuration as a command would, for Python callers."""
    with _in_one_line(overrides):
        composed = _loader().load_configuration(CONFIG, [opened(word) for word in overrides], RunMode.RUN)
    return OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])


def register() -> None:
    """Make our search path, graph files and schema known to the Hydra of this process."""
    search.register()
    schema.register()


def _job_function(arguments: Arguments, codes: list[int]) -> Callable[[DictConfig], int]:
    started_by = os.getpid()

    def job(config: DictConfig) -> int:
        code = _run_command(arguments, config)
        codes.append(code)
        if code and os.getpid() != started_by:
            raise RunError(
                f"{arguments.command} ended with exit code {code}"
            )  # a launcher's worker: all it can hand back
        return code

    return job


def _run_command(arguments: Arguments, config: DictConfig) -> int:
    try:
        code = COMMANDS[arguments.command].load()(_job(arguments, config))
        sys.stdout.flush()
    except StepgraphError as error:
        return report(error)
    except BrokenPipeError:
        return reader_left()
    except Exception:  # a fault of the program: shown whole, and not taken for one of Hydra's
        traceback.print_exc()
        return RunError.exit_code
    return code


def _job(arguments: Arguments, config: DictConfig) -> Job:
    current = HydraConfig.get()
    choices = _choices(current.runtime.choices)
    words = OmegaConf.to_container(current.overrides.task)
    assert isinstance(words, list)
    typed = _typed(config, choices, words)
    asked = Job(typed, choices, arguments.overrides, arguments.names, None, arguments.options, arguments.sides)
    if current.mode != RunMode.MULTIRUN:
        return asked
    return replace(asked, overrides=tuple(words), folder=Path(current.runtime.output_dir))


def job_of(overrides: Sequence[str]) -> Job:
    """The job that these overrides make, for a command that looks at more than one."""
    words = [opened(word) for word in overrides]
    with _in_one_line(overrides):
        composed = _loader().load_configuration(CONFIG, words, RunMode.RUN)
    choices = _choices(composed.hydra.runtime.choices)
    with open_dict(composed):  # a masked copy would lose the schema
        del composed["hydra"]
    return Job(_typed(composed, choices, words), choices, tuple(overrides))


def _choices(found: Mapping[Any, Any]) -> dict[str, str]:
    return {str(group): str(name) for group, name in found.items() if name is not None}


def _typed(config: DictConfig, choices: Mapping[str, str], words: Sequence[str]) -> schema.Config:
    """The configuration as plain typed objects, keys that nobody reads refused."""
    with _in_one_line(words):
        if _may_add_keys(words, choices):
            refuse_unknown_keys(_plain(config), _declared(choices))
        typed = OmegaConf.to_object(config)
    assert isinstance(typed, schema.Config)
    return typed


def _may_add_keys(words: Sequence[str], choices: Mapping[str, str]) -> bool:
    """Whether there can be a key that nobody declared: Hydra refused the others, and composing again takes time."""
    chosen = any(group not in GROUPS and not group.startswith("hydra/") for group in choices)
    return chosen or any(adds_key(word) for word in words)


def _declared(choices: Mapping[str, str]) -> Mapping[str, Any]:
    """The configuration of the same choices without the user's settings: it has every key that somebody reads."""
    groups = [f"{group}={choices[group]}" if group in choices else f"~{group}" for group in GROUPS]
    return _plain(_loader().load_configuration(CONFIG, groups, RunMode.RUN))


def _plain(config: DictConfig) -> dict[str, Any]:
    container = OmegaConf.to_container(config)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items() if key != "hydra"}


def _loader() -> ConfigLoaderImpl:
    """A loader of our own. Hydra's ``compose`` would take over the state of the application that we are called from."""
    hydra.version.setbase(VERSION_BASE)
    register()
    return ConfigLoaderImpl(create_config_search_path(str(search.packaged())))


def _sweep_folder(arguments: Arguments, stack: ExitStack) -> list[str]:
    """Hydra writes a sweep's record into a folder; a command that starts nothing must leave none behind."""
    if not arguments.multirun or COMMANDS[arguments.command].leaves_files:
        return []
    return [f"hydra.sweep.dir={stack.enter_context(TemporaryDirectory())}"]


@contextmanager
def _hydra_hears(words: list[str]) -> Iterator[None]:
    """Hand our words to Hydra, which reads ``sys.argv``, and have it raise its errors instead of printing them."""
    argv, full = sys.argv, os.environ.get(FULL_ERRORS)
    sys.argv, os.environ[FULL_ERRORS] = ["stepgraph", *words], "1"
    try:
        yield
    finally:
        sys.argv = argv
        os.environ.pop(FULL_ERRORS) if full is None else os.environ.update({FULL_ERRORS: full})


@contextmanager
def _in_one_line(words: Sequence[str]) -> Iterator[None]:
    """Turn what Hydra raises into the one-line error it amounts to."""
    try:
        yield
    except KNOWN as error:
        key = deleted_nothing(error)
        raise (_no_such_entry(key, words) if key else as_config_error(error)) from error


def _no_such_entry(key: str, words: Sequence[str]) -> ConfigError:
    """Say that ``~key`` takes out nothing, with the name that was meant, from the configuration without such words."""
    config = compose([word for word in words if not word.startswith("~")])
    section, _, name = key.rpartition(".")
    entries = [str(entry) for entry in (OmegaConf.select(config, section) if section else config) or ()]
    if name in entries:
        return ConfigError(f"~{key}: {key} is null already: take the word out")
    return no_such_key(section, name, entries)
