"""Hydra's errors as one line that says who, what, and the cure.

Hydra explains itself in several lines and advises ``+key`` for a typo, which makes a key that nobody reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from stepgraph.errors import ConfigError, did_you_mean

KNOWN = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError)
"""What Hydra raises while it composes. Anything else is a fault of the program and keeps its traceback."""


def as_config_error(error: Exception) -> ConfigError:
    """Say in one line what is wrong with the configuration."""
    return ConfigError(_message(error))


def no_such_key(section: str, key: str, known: Sequence[str]) -> ConfigError:
    """Refuse a key that nobody reads."""
    where = f"{section}.{key}" if section else key
    return ConfigError(f"{where}: {section or 'the configuration'} has no '{key}'{_hint(key, known)}")


def deleted_nothing(error: Exception) -> str:
    """The key that a ``~key`` named in vain; Hydra gives it in its message alone. Empty for any other error."""
    found = re.match(r"Could not delete from config. '(.+)' does not exist", str(error))
    return found[1] if found else ""


def _message(error: Exception) -> str:
    if isinstance(error, OverrideParseException):
        return f"'{error.override}' is not a setting: {_first(error.message)}; quote values: 'key=\"a value\"'"
    if isinstance(error, MissingConfigException) and error.options is not None:
        return _no_such_option(error.missing_cfg_file or "", error.options)
    if isinstance(error, yaml.MarkedYAMLError):
        return _bad_yaml(error)
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} must be set: {error.full_key}=VALUE"
    if isinstance(error, OmegaConfBaseException):
        return f"{error.full_key}: {_first(str(error))}" if error.full_key else _first(str(error))
    return _composition(error, error.__cause__)


def _composition(error: Exception, cause: BaseException | None) -> str:
    if isinstance(cause, (ConfigAttributeError, ConfigKeyError)) and isinstance(cause.parent_node, DictConfig):
        return _unknown_key(cause, cause.parent_node)
    said = " ".join(str(error).split())
    if isinstance(cause, OmegaConfBaseException):
        return f"{_first(str(error)).removeprefix('Error merging override ')}: {_first(str(cause))}"
    missing = re.search(r"Override \+?(\S+?)(?:@\S+)?=(\S+) looks like .* config group '(.+)' does not exist", said)
    if missing:
        return f"there is no {missing[1]} '{missing[2]}': no folder conf/{missing[3]} has any file{_making(missing[3])}"
    if said.startswith("Ambiguous value"):
        return f"{said.split(' 1. ')[0]}: --multirun runs each value, key=[a,b] is a list, \"key='a,b'\" is text"
    return said


def _making(group: str) -> str:
    return "; stepgraph new phase NAME writes one" if group == "phase" else ""


def _unknown_key(error: OmegaConfBaseException, parent: DictConfig) -> str:
    section = str(parent._get_full_key(None))
    return str(no_such_key(section, str(error.key), [str(key) for key in parent if key != "hydra"]))


def _no_such_option(path: str, options: Sequence[str]) -> str:
    group, _, name = path.rpartition("/")
    return f"{group}={name}: there is no {group} '{name}'{_hint(name, options)}"


def _bad_yaml(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    where = f"{mark.name}, line {mark.line + 1}: " if mark else ""
    return f"{where}not YAML: {error.problem}"


def _hint(word: str, known: Sequence[str]) -> str:
    return did_you_mean(word, known) or f" (known: {', '.join(known)})"


def _first(message: str) -> str:
    return message.strip().partition("\n")[0].rstrip(". ")
