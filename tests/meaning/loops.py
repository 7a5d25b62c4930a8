"""Loops that somebody would write: engines and trainers that take turns, with saves, evals, teachers and critics."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from .declared import Setup
from .schedules import gates, runs

Phases = dict[str, dict[str, Any]]
TURNS = ("policy", "engine", "kv")
EVERYWHERE = (*TURNS, "critic", "teacher", "judge", "judge_kv")


def gated(phase: dict[str, Any], when: dict[str, Any] | None) -> dict[str, Any]:
    return phase if when is None else {**phase, "when": when}


def resources(flags: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "prompts": "stream",
        "policy": {"kind": "weights", "of": "trainer", "at": "host"},
        "engine": {"kind": "weights", "of": "engine", "at": "host"},
        "kv": {"kind": "scratch", "of": "engine", "at": "none"},
        "ckpt": "sink",
        "scores": "sink",
    }
    if flags["critic"]:
        out["critic"] = {"kind": "weights", "of": "critic", "at": "host"}
    if flags["teacher"]:
        out["teacher"] = {"kind": "weights", "of": "teacher", "at": "host"}
    if flags["judge"]:
        out["judge"] = {"kind": "weights", "of": "judge", "at": "host"}
        out["judge_kv"] = {"kind": "scratch", "of": "judge", "at": "none"}
    return out


def rollout(flags: dict[str, Any]) -> Phases:
    generate = {"use": "engine.generate", "reads": ["engine"], "updates": ["prompts"], "writes": ["rollouts"]}
    needs = {"needs": {"engine": "device", "kv": "device"}}
    ahead = {"ahead": 1} if flags["ahead"] else {}
    return {"generate": {**generate, **needs, **ahead}}


def leave(flags: dict[str, Any]) -> Phases:
    """The engine leaves; ``level`` two throws its weights away. One call, or one for each thing."""
    place = "none" if flags["level"] == 2 else "host"
    if flags["singly"]:
        return {
            "offload_kv": {"use": "engine.offload", "moves": {"kv": "none"}},
            "offload_engine": {"use": "engine.offload", "moves": {"engine": place}},
        }
    whole = {"whole": True} if flags["whole"] else {}
    return {"offload_engine": {"use": "engine.offload", "moves": {"engine": place, "kv": "none"}, **whole}}


def score(flags: dict[str, Any]) -> Phases:
    reads = ["rollouts", *(["ref"] if flags["teacher"] else []), *(["grades"] if flags["judge"] else [])]
    out: Phases = {}
    if flags["teacher"]:
        ref = {"use": "teacher.score", "reads": ["teacher", "rollouts"], "writes": ["ref"]}
        out["reload_teacher"] = {"use": "teacher.reload", "moves": {"teacher": "device"}}
        out["ref"] = {**ref, "needs": {"teacher": "device"}, **({"pure": True} if flags["pure"] else {})}
        out["offload_teacher"] = {"use": "teacher.offload", "moves": {"teacher": "host"}}
    if flags["judge"]:
        both = {"judge": "device", "judge_kv": "device"}
        out["reload_judge"] = {"use": "judge.reload", "moves": dict(both)}
        out["grade"] = {"use": "judge.grade", "reads": ["judge", "rollouts"], "writes": ["grades"], "needs": dict(both)}
        out["offload_judge"] = {"use": "judge.offload", "moves": {"judge": "host", "judge_kv": "none"}}
    out["score"] = {"use": "rewards.score", "reads": reads, "writes": ["rewards"]}
    return out


def learn(flags: dict[str, Any]) -> Phases:
    """Critic and policy take turns; in a warm-up the policy waits. A critic may also share the trainer's turn."""
    out: Phases = {}
    warm = {"from": flags["warmup"]} if flags["warmup"] else None
    if flags["critic"]:
        fit = {"use": "critic.train", "reads": ["rollouts", "rewards"], "updates": ["critic"], "writes": ["values"]}
        out["reload_critic"] = {"use": "critic.reload", "moves": {"critic": "device"}}
        out["train_critic"] = {**fit, "needs": {"critic": "device"}}
        out["offload_critic"] = {"use": "critic.offload", "moves": {"critic": "host"}}
    reads = ["rollouts", "rewards", *(["values"] if flags["critic"] else [])]
    train = {"use": "trainer.train", "reads": reads, "updates": ["policy"], "needs": {"policy": "device"}}
    save = {"use": "trainer.save", "reads": ["policy"], "needs": {"policy": "device"}, "writes": ["ckpt"]}
    out["reload_policy"] = {"use": "trainer.reload", "moves": {"policy": "device"}}
    out["train"] = gated(train, warm)
    out["save"] = gated(save, flags["save"])
    return out


def come_back(flags: dict[str, Any]) -> Phases:
    """Hand over to the engine, in one of the orders seen in the field: the trainer leaves first, or after the sync."""
    sync = {"use": "engine.sync", "copies": {"engine": "policy"}, "needs": {"engine": "device"}}
    wake = {"use": "engine.reload", "moves": {"engine": "device"}}
    gone = {"offload_policy": {"use": "trainer.offload", "moves": {"policy": "host"}}}
    synced: Phases = {"reload_engine": wake, "sync_weights": gated(sync, flags["sync"])}
    kv: Phases = {"reload_kv": {"use": "engine.reload", "moves": {"kv": "device"}}}
    order = [gone, synced, kv] if flags["order"] == "trainer first" else [synced, gone, kv]
    teacher = {"copies": {"teacher": "engine" if flags["chain"] else "policy"}, "use": "teacher.sync"}
    if flags["teacher"] and flags["refresh"]:
        order.insert(2, {"refresh_teacher": gated(teacher, flags["refresh_when"])})
    return {name: phase for group in order for name, phase in group.items()}


def look(flags: dict[str, Any]) -> Phases:
    evaluate = {"use": "engine.evaluate", "reads": ["engine"], "needs": {"engine": "device", "kv": "device"}}
    return {"eval": gated({**evaluate, "writes": ["scores"]}, flags["eval"])}


def start(flags: dict[str, Any]) -> dict[str, Any]:
    """Before the first step: the engine gets its contents, perhaps one eval. At the head of a step nothing is due."""
    if flags["head"]:
        return {}
    own = {"first_sync": {"use": "engine.sync", "copies": {"engine": "policy"}}}
    sync = own if flags["own_sync"] else {"sync_weights": None}
    refresh = {"refresh_teacher": None} if flags["teacher"] and flags["refresh"] else {}
    look_first = {"eval": None} if flags["eval_first"] else {}
    return {"reload_engine": None, **sync, **refresh, "reload_kv": None, **look_first}


def placements(flags: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Who shares the device: all, nobody, the engine's cache only, two of them, or one way only."""
    groups = sorted({entry["of"] for entry in known.values() if isinstance(entry, dict) and entry.get("of")})
    at = {name: "device" for name in known if name in EVERYWHERE}
    apart = {name: place for name, place in at.items() if name not in TURNS}
    known_ways: dict[str, dict[str, Any]] = {
        "colocated": {"makes_room": {one: [other for other in groups if other != one] for one in groups}},
        "split": {"makes_room": {}, "at": at},
        "kv only": {"makes_room": {"trainer": ["engine"], "kv": ["trainer"]}},
        "two": {"makes_room": {"trainer": ["engine"], "engine": ["trainer"]}, "at": apart},
        "one way": {"makes_room": {"trainer": ["engine"]}},
        "nobody": {},
    }
    return known_ways[flags["placement"]]


KEEPS: tuple[dict[str, str], ...] = (
    {"policy": "any"},
    {"policy": "any", "engine": "device"},
    {"policy": "host"},
    {"engine": "any"},
)
RARE = ("critic", "teacher", "judge", "singly", "whole", "pure", "refresh", "chain", "own_sync", "eval_first", "head")
SHARED = ["colocated", "colocated", "split", "kv only", "two", "one way", "nobody"]


@st.composite
def flags(draw: st.DrawFn) -> dict[str, Any]:
    rarely = st.sampled_from([False, False, False, True])
    ahead = draw(rarely)
    shared = ["split", "nobody"] if ahead else SHARED
    out: dict[str, Any] = {name: draw(rarely) for name in RARE}
    out |= {"ahead": ahead, "level": draw(st.sampled_from([1, 1, 2])), "warmup": draw(st.sampled_from([0, 0, 1, 2]))}
    out |= {"save": draw(gates(("eval",))), "eval": draw(gates()), "refresh_when": draw(gates(("save",)))}
    out |= {"sync": draw(gates(("save",))) if draw(rarely) else None, "placement": draw(st.sampled_from(shared))}
    return out | {"order": draw(st.sampled_from(["trainer first", "sync first"])), "keep": draw(st.sampled_from(KEEPS))}


@st.composite
def loops(draw: st.DrawFn) -> Setup:
    """A loop with its placement and its run; one in eight has two phases in the wrong order, or one too few."""
    chosen = draw(flags())
    head, tail = [rollout(chosen), leave(chosen), score(chosen), learn(chosen)], [come_back(chosen), look(chosen)]
    groups = [come_back(chosen), look(chosen), *head] if chosen["head"] else [*head, *tail]
    step = {name: phase for group in groups for name, phase in group.items()}
    if draw(st.integers(0, 7)) == 7:
        step = spoilt(draw, step)
    known = resources(chosen)
    before = {name: entry for name, entry in start(chosen).items() if entry is not None or name in step}
    graph = {"name": "loop", "resources": known, "keep": chosen["keep"], "start": before, "step": step}
    return Setup(graph, placements(chosen, known), draw(runs()))


def spoilt(draw: st.DrawFn, step: Phases) -> Phases:
    names = list(step)
    at = draw(st.integers(0, len(names) - 2))
    names[at : at + 2] = draw(st.sampled_from([[names[at + 1], names[at]], [names[at]]]))
    left = {name: dict(step[name]) for name in names}
    wanted = {phase.get("when", {}).get("with") for phase in left.values()} - {None}
    return left if wanted <= left.keys() and values(left) <= written(left) else step


def values(step: Phases) -> set[str]:
    """The values that somebody reads. One that nobody writes is a slip of the pen, refused before compiling."""
    return {name for phase in step.values() for name in phase.get("reads", ())} - set(EVERYWHERE)


def written(step: Phases) -> set[str]:
    return {name for phase in step.values() for name in phase.get("writes", ())}
