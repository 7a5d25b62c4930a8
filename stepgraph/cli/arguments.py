"""What the words on the command line are: a command, names, Hydra's flags, overrides.

Hydra's parser wants flags before overrides, and ``+`` before a key that a config does not have yet. People should need
neither: the words are sorted here, and some keys may be new, as somebody else knows them: those under ``graph.``, say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stepgraph.cli.commands import COMMANDS
from stepgraph.errors import ConfigError, did_you_mean

HELP = ("-h", "--help")
VERSION = ("--version",)
SWITCHES = ("--multirun", "-m", "--run", "-r", "--resolve", "--hydra-help", "--shell-completion", "-sc")
CFG = ("job", "hydra", "all")
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
VALUED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("--cfg", "-c"), CFG),
    **dict.fromkeys(("--info", "-i"), INFO),
    **dict.fromkeys(("--package", "-p", "--config-name", "-cn", "--config-dir", "-cd"), ()),
}
"""Flags that take a value, with the values they take where that is fixed."""
GROUPS = ("graph", "placement", "engine", "trainer", "rewards", "data", "model", "executor", "transport", "tracker")
"""The groups that a configuration has one choice of."""
SIDE = "--"
"""Stands before each side of a comparison."""
OPEN = ("graph.", "placement.", "components.", "executor.actors.", "executor.init.", "executor.runtime_env.")
"""Sections whose keys the graph's own check knows, or the executor's, or Ray's, so that Hydra need not."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """One command line, sorted. ``overrides`` are the user's own words, for hints; ``options`` the command's own flags;
    ``sides`` the words after each ``--``.
    """

    command: str = ""
    names: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    help: bool = False
    version: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    sides: tuple[tuple[str, ...], ...] = ()

    @property
    def multirun(self) -> bool:
        """Whether Hydra is asked for more than one job."""
        return any(flag in ("--multirun", "-m") for flag in self.flags)

    def for_hydra(self) -> list[str]:
        """The words as Hydra wants them."""
        return [*self.flags, *(opened(override) for override in self.overrides)]


def read(words: Sequence[str]) -> Arguments:
    """Sort the words of one command line.

    >>> read(["plan", "graph=grpo", "--cfg", "job"]).for_hydra()
    ['--cfg', 'job', 'graph=grpo']
    """
    if not words or words[0] in HELP:
        return Arguments(help=True)
    if words[0] in VERSION:
        return Arguments(version=True)
    command = _command(words[0])
    own = dict(COMMANDS[command].options)
    flags, options, rest = _split_flags(words[1:], own)
    if any(flag in HELP for flag in flags):
        return Arguments(command, help=True)
    rest, *sides = _split_sides(command, rest)
    overrides = tuple(word for word in rest if _is_override(word))
    names = _names(command, [word for word in rest if not _is_override(word)])
    return Arguments(command, names, flags, overrides, options=options, sides=tuple(map(tuple, sides)))


def opened(override: str) -> str:
    """An override as Hydra takes it: new keys where they are checked elsewhere, and ``GROUP=null`` takes a group out.

    >>> opened("graph.step.eval.when.last=true"), opened("+graph.step.x.use=a.b"), opened("~graph.step.eval")
    ('++graph.step.eval.when.last=true', '++graph.step.x.use=a.b', '~graph.step.eval')
    >>> opened("tracker=null")
    '~tracker'
    """
    key, _, value = override.lstrip("+").partition("=")
    if key in (*GROUPS, "experiment") and value == "null":
        return f"~{key}"
    return f"++{key}={value}" if _is_open(key) else override


def adds_key(override: str) -> bool:
    """Whether an override may make a key that only we can refuse: Hydra takes whatever has a ``+``."""
    return override.startswith("+") and not _is_open(override.lstrip("+").partition("=")[0])


def _is_open(key: str) -> bool:
    """Whether a key is in such a section, or is one that is not a group."""
    return "." in key and f"{key}.".startswith(OPEN)


def _command(word: str) -> str:
    if word in COMMANDS:
        return word
    known = ", ".join(COMMANDS)
    if _is_override(word) or word.startswith("-"):
        raise ConfigError(f"'{word}' stands where a command should: stepgraph COMMAND {word}, with one of {known}")
    raise ConfigError(f"there is no command '{word}'{did_you_mean(word, COMMANDS)}; commands: {known}")


def _is_override(word: str) -> bool:
    return "=" in word or word.startswith(("~", "+"))


def _names(command: str, names: Sequence[str]) -> tuple[str, ...]:
    if names and not COMMANDS[command].names:
        raise ConfigError(f"{command} takes no name, got '{names[0]}'; a setting is written key=value")
    return tuple(names)


def _split_sides(command: str, words: Sequence[str]) -> list[list[str]]:
    """The words before the first ``--``, then those after each."""
    if SIDE in words and not COMMANDS[command].sides:
        raise ConfigError(f"{command} takes no '{SIDE}'; a setting is written key=value")
    parts: list[list[str]] = [[]]
    for word in words:
        if word == SIDE:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _split_flags(words: Sequence[str], own: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str], list[str]]:
    """Hydra's flags, the command's own with their values, and the other words in their order."""
    flags: list[str] = []
    options: dict[str, str] = {}
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word.partition("=")[0] in own:
            options.update([_option(word, own, remaining)])
        elif word.startswith("-") and word != SIDE:
            flags += _flag(word, own, remaining)
        else:
            rest.append(word)
    return tuple(flags), options, rest


def _option(word: str, own: Mapping[str, str], remaining: Iterator[str]) -> tuple[str, str]:
    """A flag of the command's own, and its value where it takes one."""
    name, equals, value = word.partition("=")
    if not own[name]:
        if equals:
            raise ConfigError(f"{name} takes no value, got '{value}'")
        return name, ""
    value = value if equals else next(remaining, "")
    if not value or value.startswith("-"):
        raise ConfigError(f"{name} wants a value: {name} {own[name]}")
    return name, value


def _flag(word: str, own: Mapping[str, str], remaining: Iterator[str]) -> list[str]:
    name, equals, value = word.partition("=")
    known = (*HELP, *SWITCHES, *VALUED, *own)
    if name not in known:
        raise ConfigError(f"there is no flag '{name}'{did_you_mean(name, known)}; a setting is written key=value")
    if name not in VALUED:
        return [word]
    return [name, _value(name, value if equals else next(remaining, ""))]


def _value(flag: str, value: str) -> str:
    allowed = VALUED[flag]
    if not value or (allowed and value not in allowed):
        wanted = f"one of {', '.join(allowed)}" if allowed else "a value"
        raise ConfigError(f"{flag} wants {wanted}, got '{value}'{did_you_mean(value, allowed)}")
    return value
