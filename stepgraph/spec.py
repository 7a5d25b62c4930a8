"""YAML to graph: the language's grammar, and what is refused before anything is compiled.

Every key is known here or refused with the nearest one. What depends on order, places or contents is the compiler's
to judge; what depends on one phase or one name alone is judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from stepgraph.errors import ConfigError, GraphError, did_you_mean
from stepgraph.ir.graph import Graph, Placement, Run
from stepgraph.ir.phase import RUNTIME_TRIGGERS, Pairs, Phase, When
from stepgraph.ir.resource import KINDS, PLACES, Resource
from stepgraph.own import completed
from stepgraph.phases import SLOTS

NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
GRAPH_KEYS = ("name", "doc", "resources", "places", "keep", "start", "step", "end")
RESOURCE_KEYS = ("kind", "of", "at", "doc")
PLACEMENT_KEYS = ("name", "doc", "makes_room", "at", "sizes", "capacity")
RUN_KEYS = ("steps", "first", "epochs", "steps_per_epoch", "extend")
WHEN_KEYS = ("every", "steps", "first", "last", "epoch_end", "with", "from", "until", *RUNTIME_TRIGGERS)
PHASE_KEYS = (
    "use", "reads", "writes", "updates", "needs", "moves", "copies", "whole", "pure", "when", "ahead", "enabled", "doc",
    "on_error", "retries", "timeout_s", "before", "after", "hooks", "options",
)  # fmt: skip
ON_ERROR = ("fail", "warn")


def parse(
    graph: Mapping[str, Any],
    placement: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
    *,
    max_staleness: int | None = None,
    source: str = "",
) -> Graph:
    """Read a declared loop, with the placement and the run it is compiled for.

    Raises ``GraphError`` for what is wrong in the graph or the placement, ``ConfigError`` for the run.
    """
    known_keys(graph, GRAPH_KEYS, "graph")
    graph, said = completed(graph)
    name = str(graph.get("name") or "graph")
    places = parse_place_names(graph.get("places"))
    resources = parse_resources(mapping(graph.get("resources"), "graph.resources"), places)
    step = arrange(parse_phases(mapping(graph.get("step"), "graph.step"), "step"), "step")
    start = section(mapping(graph.get("start"), "graph.start"), step, "start")
    end = section(mapping(graph.get("end"), "graph.end"), step, "end")
    resources = with_values(resources, (*start, *step, *end))
    place = placement or {}
    resources = placed(resources, place, places)
    made = Graph(
        name=name,
        resources=resources,
        keep=parse_places(
            mapping(graph.get("keep"), "graph.keep"), "graph.keep", (*places, "any"), resources, bang=True
        ),
        start=start,
        step=step,
        end=end,
        places=places,
        placement=parse_placement(place, resources, places),
        run=parse_run(run or {}),
        max_staleness=whole_number(max_staleness, "max_staleness", none=True, error=ConfigError),
        source=source,
        unused=unused(place, resources),
        notes=tuple(said.notes),
        missing=tuple(said.missing),
    )
    for title, phases in (("start", start), ("step", step), ("end", end)):
        for phase in phases:
            check_phase(phase, title, made)
    check_gates(made)
    return made


# ---- small readers -------------------------------------------------------------------------------------------------


def known_keys(given: Mapping[str, Any], known: Iterable[str], where: str, error: type = GraphError) -> None:
    """Refuse the first key that nobody reads."""
    for key in given:
        if key not in known:
            raise error(
                f"{where} has an unknown key '{key}'{did_you_mean(str(key), known)} (known: {', '.join(known)})"
            )


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """``null`` is an empty mapping; anything else but a mapping is refused."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise GraphError(f"{where} is {value!r}: write a mapping, {{name: ...}}")
    return value


def names(value: Any, where: str) -> tuple[str, ...]:
    """A list of names; one name may stand alone."""
    if value is None:
        return ()
    listed = (value,) if isinstance(value, str) else value
    if isinstance(listed, Mapping) or not isinstance(listed, Iterable) or not all(isinstance(x, str) for x in listed):
        raise GraphError(f"{where} is {value!r}: write a list of names, [a, b]")
    return tuple(dict.fromkeys(listed))


def chosen(value: Any, where: str) -> tuple[str, ...]:
    """Names of contents, as a list, or as a mapping whose entries of false, null and 0 are taken out."""
    if not isinstance(value, Mapping):
        return names(value, where)
    return names([name for name, said in value.items() if _switched(said, f"{where}.{name}")], where)


def _switched(value: Any, where: str) -> bool:
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    cure = f"; only the command line resolves that: say {where}=true or =false" if "${" in str(value) else ""
    raise GraphError(f"{where} is {value!r}: write true, false or a number{cure}")


def flag(value: Any, where: str) -> bool:
    """A yes or no; ``null`` is no."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise GraphError(f"{where} is {value!r}: write true or false")


def whole_number(value: Any, where: str, *, least: int = 0, none: bool = False, error: type = GraphError) -> int | None:
    """An integer of at least ``least``; ``null`` where ``none`` allows it."""
    if value is None and none:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise error(f"{where}={value!r} is not a whole number: give one of at least {least}")
    if value < least:
        raise error(f"{where}={value} is less than {least}: give a whole number of at least {least}")
    return value


def positive(value: Any, where: str) -> float:
    """A number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise GraphError(f"{where} is {value!r}: give a number above 0")
    return float(value)


def parse_place_names(given: Any) -> tuple[str, ...]:
    """The three places that there always are, and those that a graph adds."""
    added = [place for place in names(given, "graph.places") if place not in PLACES]
    for place in added:
        good_name(place, "graph.places")
        if place == "any":
            raise GraphError("graph.places: 'any' means any place there is: call it something else")
    return (*PLACES, *added)


# ---- resources and placement ---------------------------------------------------------------------------------------


def parse_resources(given: Mapping[str, Any], places: tuple[str, ...]) -> dict[str, Resource]:
    """Read the resources; a bare word is a kind, ``null`` takes an inherited one out."""
    return {name: parse_resource(name, spec, places) for name, spec in given.items() if spec is not None}


def parse_resource(name: str, spec: Any, places: tuple[str, ...]) -> Resource:
    where = f"graph.resources.{name}"
    good_name(name, where)
    fields = {"kind": spec} if isinstance(spec, str) else mapping(spec, where)
    known_keys(fields, RESOURCE_KEYS, where)
    kind = fields.get("kind", "value")
    one_of(kind, KINDS, f"{where}.kind")
    made = Resource(name, kind, of=str(fields.get("of") or ""), doc=str(fields.get("doc") or ""))
    if not made.placed:
        if "at" in fields:
            raise GraphError(f"{where} is a {kind} and has no place: take 'at' out")
        return made
    at = fields.get("at", "host")
    one_of(at, places, f"{where}.at")
    return replace(made, at=at)


def with_values(resources: dict[str, Resource], phases: tuple[Phase, ...]) -> dict[str, Resource]:
    """Add the names that phases write and nobody declared: they are values."""
    written = {name for phase in phases for name in (*phase.writes, *phase.updates)}
    found = dict(resources)
    for name in sorted(written - set(resources)):
        good_name(name, "graph: the value")
        found[name] = Resource(name)
    return found


def placed(
    resources: dict[str, Resource], placement: Mapping[str, Any], places: tuple[str, ...]
) -> dict[str, Resource]:
    """Give resources the places and sizes that the placement states.

    One placement serves many graphs: a name that this one has not is skipped, unless it looks like a slip.
    """
    found = dict(resources)
    for name, at in mapping(placement.get("at"), "placement.at").items():
        if at is not None and no_slip(name, "placement.at", found):
            one_of(at, places, f"placement.at.{name}")
            needs_placed(name, f"placement.at.{name}", found)
            found[name] = replace(found[name], at=at)
    for name, size in mapping(placement.get("sizes"), "placement.sizes").items():
        if size is not None and no_slip(name, "placement.sizes", found):
            needs_placed(name, f"placement.sizes.{name}", found)
            found[name] = replace(found[name], size=0.0 if size == 0 else positive(size, f"placement.sizes.{name}"))
    return found


def unused(placement: Mapping[str, Any], resources: Mapping[str, Resource]) -> tuple[str, ...]:
    """The entries of a placement that speak of what the graph has not."""
    return tuple(
        f"placement.{key}.{name}"
        for key in ("at", "sizes")
        for name, said in mapping(placement.get(key), f"placement.{key}").items()
        if said is not None and name not in resources
    )


def no_slip(name: str, where: str, resources: Mapping[str, Resource]) -> bool:
    """Whether the graph has the resource. A name that is nearly one of its own is refused."""
    if name not in resources and did_you_mean(name, resources):
        raise GraphError(f"{where}: no resource '{name}'{did_you_mean(name, resources)}")
    return name in resources


def parse_placement(given: Mapping[str, Any], resources: Mapping[str, Resource], places: tuple[str, ...]) -> Placement:
    """Read who leaves the device for whom, and what each place holds at most."""
    known_keys(given, PLACEMENT_KEYS, "placement")
    room = mapping(given.get("makes_room"), "placement.makes_room")
    pairs = tuple((x, names(ys, f"placement.makes_room.{x}")) for x, ys in room.items() if ys is not None)
    known = sorted({r.of for r in resources.values() if r.of} | {r.name for r in resources.values() if r.placed})
    for x, ys in pairs:
        for name in (x, *ys):
            if name not in known:
                hint = did_you_mean(name, known) or f" (known: {', '.join(known)})"
                raise GraphError(
                    f"placement.makes_room names '{name}', which is no component or resource of the graph{hint}"
                )
    capacity = mapping(given.get("capacity"), "placement.capacity")
    for place in capacity:
        one_of(place, places, "placement.capacity")
    limits = tuple((p, positive(c, f"placement.capacity.{p}")) for p, c in capacity.items() if c is not None)
    return Placement(str(given.get("name") or ""), pairs, limits)


def parse_run(given: Mapping[str, Any]) -> Run:
    """Read the length of the run."""
    known_keys(given, RUN_KEYS, "run", ConfigError)
    if given.get("epochs") is not None and given.get("steps_per_epoch") is None:
        raise ConfigError("run.epochs is given without run.steps_per_epoch: say how many steps make an epoch")

    def number(key: str, least: int = 0) -> int | None:
        return whole_number(given.get(key), f"run.{key}", least=least, none=True, error=ConfigError)

    return Run(
        steps=number("steps"),
        first=number("first") or 0,
        epochs=number("epochs"),
        steps_per_epoch=number("steps_per_epoch", 1),
        extend=number("extend") or 0,
    )


# ---- phases --------------------------------------------------------------------------------------------------------


def parse_phases(given: Mapping[str, Any], title: str) -> list[tuple[Phase, tuple[str, ...], tuple[str, ...]]]:
    """Read a list of phases with the marks that say where an added one stands."""
    found = []
    for name, spec in given.items():
        where = f"{title}.{name}"
        if spec is None:
            raise GraphError(f"{where} is empty: say what it uses, or take it out with '~graph.{where}'")
        fields = mapping(spec, where)
        found.append((parse_phase(name, fields, where), *marks(fields, where)))
    return found


def marks(fields: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where an added phase stands: before and after which others."""
    return names(fields.get("before"), f"{where}.before"), names(fields.get("after"), f"{where}.after")


def parse_phase(name: str, fields: Mapping[str, Any], where: str) -> Phase:
    good_name(name, where)
    known_keys(fields, PHASE_KEYS, where)
    on_error = fields.get("on_error") or "fail"
    one_of(on_error, ON_ERROR, f"{where}.on_error")
    timeout = fields.get("timeout_s")
    return Phase(
        name=name,
        use=str(fields.get("use") or ""),
        reads=chosen(fields.get("reads"), f"{where}.reads"),
        writes=chosen(fields.get("writes"), f"{where}.writes"),
        updates=chosen(fields.get("updates"), f"{where}.updates"),
        needs=pairs(fields.get("needs"), f"{where}.needs"),
        moves=pairs(fields.get("moves"), f"{where}.moves"),
        copies=pairs(fields.get("copies"), f"{where}.copies"),
        whole=flag(fields.get("whole"), f"{where}.whole"),
        pure=flag(fields.get("pure"), f"{where}.pure"),
        when=parse_when(mapping(fields.get("when"), f"{where}.when"), f"{where}.when"),
        ahead=whole_number(fields.get("ahead") or 0, f"{where}.ahead") or 0,
        enabled=flag(fields.get("enabled", True), f"{where}.enabled"),
        doc=str(fields.get("doc") or ""),
        on_error=on_error,
        retries=whole_number(fields.get("retries") or 0, f"{where}.retries") or 0,
        timeout_s=None if timeout is None else positive(timeout, f"{where}.timeout_s"),
        hooks=dict(mapping(fields.get("hooks"), f"{where}.hooks")),
        options=dict(mapping(fields.get("options"), f"{where}.options")),
    )


def pairs(value: Any, where: str) -> Pairs:
    """A mapping of names to words; an entry of ``null`` is taken out."""
    given = mapping(value, where)
    for name, word in given.items():
        if word is not None and not isinstance(word, str):
            raise GraphError(f"{where}.{name} is {word!r}: write a name")
    return tuple((name, word) for name, word in given.items() if word is not None)


def parse_when(given: Mapping[str, Any], where: str) -> When:
    """Read a gate. A trigger that is named but null or false never fires."""
    known_keys(given, WHEN_KEYS, where)
    every = given.get("every") or None
    steps = given.get("steps") or ()
    if isinstance(steps, int | str | Mapping):
        raise GraphError(f"{where}.steps is {steps!r}: write a list of step numbers, [3, 7]")
    with_ = given.get("with")
    if with_ is not None and not isinstance(with_, str):
        raise GraphError(f"{where}.with is {with_!r}: write a phase's name")
    return When(
        named=any(key in given for key in WHEN_KEYS if key not in ("from", "until")),
        every=whole_number(every, f"{where}.every", least=1, none=True),
        steps=tuple(whole_number(k, f"{where}.steps") or 0 for k in steps),
        first=flag(given.get("first"), f"{where}.first"),
        last=flag(given.get("last"), f"{where}.last"),
        epoch_end=flag(given.get("epoch_end"), f"{where}.epoch_end"),
        with_=with_,
        start=whole_number(given.get("from") or 0, f"{where}.from") or 0,
        until=whole_number(given.get("until"), f"{where}.until", none=True),
        runtime=tuple((key, str(given[key])) for key in RUNTIME_TRIGGERS if given.get(key)),
    )


def arrange(given: list[tuple[Phase, tuple[str, ...], tuple[str, ...]]], title: str) -> tuple[Phase, ...]:
    """Put each phase that says ``before`` or ``after`` in its place; the others stand as written."""
    order = [phase for phase, before, after in given if not before and not after]
    waiting = [entry for entry in given if entry[1] or entry[2]]
    known = [phase.name for phase, _, _ in given]
    while waiting:
        ready = [w for w in waiting if {*w[1], *w[2]} <= {p.name for p in order}]
        if not ready:
            refuse_marks(waiting, known, title)
        for entry in ready:
            insert(order, entry, title)
            waiting.remove(entry)
    return tuple(order)


def insert(order: list[Phase], entry: tuple[Phase, tuple[str, ...], tuple[str, ...]], title: str) -> None:
    phase, before, after = entry
    at = [p.name for p in order]
    low = max((at.index(name) + 1 for name in after), default=0)
    high = min((at.index(name) for name in before), default=len(order))
    if low > high:
        raise GraphError(
            f"{title}.{phase.name} is to stand after {list(after)} and before {list(before)}: no such place"
        )
    order.insert(low if after else high, phase)


def refuse_marks(waiting: list[tuple[Phase, tuple[str, ...], tuple[str, ...]]], known: list[str], title: str) -> None:
    for phase, before, after in waiting:
        for name in (*before, *after):
            if name not in known:
                hint = did_you_mean(name, known)
                raise GraphError(
                    f"{title}.{phase.name} is to stand beside '{name}', which is no phase of {title}{hint}"
                )
    circle = ", ".join(phase.name for phase, _, _ in waiting)
    raise GraphError(f"{title}: {circle} each wait for the place of another: say where one of them stands in the list")


def section(given: Mapping[str, Any], step: tuple[Phase, ...], title: str) -> tuple[Phase, ...]:
    """Read ``start`` or ``end``: an entry takes the step's phase of that name, without its gate, under its own keys."""
    base = {phase.name: phase for phase in step}
    return arrange([entry(name, spec, base, title) for name, spec in given.items()], title)


def entry(
    name: str, spec: Any, base: Mapping[str, Phase], title: str
) -> tuple[Phase, tuple[str, ...], tuple[str, ...]]:
    where = f"{title}.{name}"
    fields = mapping(spec, where)
    if "when" in fields:
        raise GraphError(f"{where} has a 'when', but {title} runs once: use 'enabled'")
    made = parse_phase(name, fields, where)
    stands = marks(fields, where)
    if name not in base:
        if not fields:
            raise GraphError(f"{where} is empty and the step has no phase '{name}'{did_you_mean(name, base)}")
        return made, *stands
    changed = {key: getattr(made, key) for key in fields if key not in ("before", "after")}
    return replace(base[name], **{"when": When(), "ahead": 0, **changed}), *stands


# ---- checks of one phase -------------------------------------------------------------------------------------------


def good_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not NAME.match(name):
        raise GraphError(f"{where}: '{name}' is no name: use lower-case letters, digits and _, a letter first")


def one_of(word: Any, known: Iterable[str], where: str) -> None:
    known = tuple(known)
    if word not in known:
        raise GraphError(f"{where} is '{word}'{did_you_mean(str(word), known)} (known: {', '.join(known)})")


def parse_places(
    given: Mapping[str, Any], where: str, places: tuple[str, ...], resources: Mapping[str, Resource], *, bang: bool
) -> Pairs:
    """Read resource -> place pairs and check both sides; ``bang`` allows ``"!place"``."""
    found = pairs(given, where)
    for name, place in found:
        needs_placed(name, f"{where}.{name}", resources)
        one_of(place.removeprefix("!") if bang else place, places, f"{where}.{name}")
    return found


def needs_placed(name: str, where: str, resources: Mapping[str, Resource]) -> None:
    known = [r.name for r in resources.values() if r.placed]
    if name not in resources:
        raise GraphError(f"{where}: no resource '{name}'{did_you_mean(name, known)} (declare it under graph.resources)")
    if not resources[name].placed:
        raise GraphError(
            f"{where}: '{name}' is a {resources[name].kind} and has no place (weights, state and scratch have)"
        )


def check_phase(phase: Phase, title: str, graph: Graph) -> None:
    where = f"{title}.{phase.name}"
    if phase.enabled and not phase.use:
        raise GraphError(f"{where} says nothing to run: give it use: component.method, or a target of your own")
    check_hooks(phase, where)
    check_contents(phase, where, graph)
    parse_places(dict(phase.needs), f"{where}.needs", graph.places, graph.resources, bang=True)
    parse_places(dict(phase.moves), f"{where}.moves", graph.places, graph.resources, bang=False)
    freed = {name for name, place in phase.moves if place == "none"}
    for target, source in phase.copies:
        for name in (target, source):
            needs_contents(name, where, graph)
        if target == source:
            raise GraphError(f"{where} copies '{target}' onto itself: name two resources")
        if freed & {target, source}:
            raise GraphError(
                f"{where} frees '{(freed & {target, source}).pop()}' and copies it in one phase: make them two phases"
            )
    both = {target for target, _ in phase.copies} & {source for _, source in phase.copies}
    if both:
        raise GraphError(f"{where} copies into and from '{sorted(both)[0]}' in one phase: make them two phases")


def needs_contents(name: str, where: str, graph: Graph) -> None:
    needs_placed(name, f"{where}.copies", graph.resources)
    if not graph.resources[name].carried:
        raise GraphError(f"{where}.copies: '{name}' is scratch, whose contents never matter: copy weights or state")


def check_hooks(phase: Phase, where: str) -> None:
    """Refuse a slot that the method has not. What other methods have, only their components know."""
    slots = SLOTS.get(phase.use.partition(".")[2], ()) if phase.component else ()
    for slot in phase.hooks if slots else ():
        if slot not in slots:
            hint = did_you_mean(slot, slots)
            raise GraphError(f"{where}.hooks: {phase.use} has no slot '{slot}'{hint} (slots: {', '.join(slots)})")


def check_contents(phase: Phase, where: str, graph: Graph) -> None:
    known = list(graph.resources)
    for name in phase.reads:
        if name not in graph.resources:
            raise GraphError(f"{where} reads '{name}', which no phase writes{did_you_mean(name, known)}")
    for name in (*phase.reads, *phase.updates):
        if graph.resources[name].kind == "sink":
            raise GraphError(f"{where} takes '{name}' back from the outside world: a sink is only written")
    twice = set(phase.writes) & set(phase.updates)
    if twice:
        raise GraphError(f"{where} both writes and updates '{sorted(twice)[0]}': 'updates' says both")


def check_gates(graph: Graph) -> None:
    gates = {phase.name: phase for phase in graph.step}
    for phase in graph.step:
        where, when = f"step.{phase.name}.when", phase.when
        if when.epoch_end and graph.run.steps_per_epoch is None:
            raise ConfigError(f"{where}.epoch_end needs the length of an epoch: give run.steps_per_epoch=N")
        seen = [phase.name]
        while when.with_ is not None:
            if when.with_ not in gates:
                raise GraphError(f"{where}.with: no phase '{when.with_}' in the step{did_you_mean(when.with_, gates)}")
            if when.with_ in seen:
                raise GraphError(f"{where}.with goes in a circle: {' -> '.join([*seen, when.with_])}")
            seen.append(when.with_)
            when = gates[when.with_].when
