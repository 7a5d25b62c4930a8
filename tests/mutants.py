"""Break each pass of the compiler on purpose, and see whether the tests notice.

``python tests/mutants.py [PASS ...]`` copies the package, makes one small change at a time, and runs the fast tests
against it until one fails. It prints who noticed, or MISSED, and exits with 1 where a change was missed. A change whose
text is not there any more is an error: mend the table below.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAST = ("tests/compiler", "tests/views/test_table.py", "tests/meaning")
PROFILE = "--hypothesis-profile=few"
LONGEST = 240.0
"""Seconds after which a change counts as noticed: the compiler does not come to an end."""

Change = tuple[str, str]
"""The text, and what stands there instead."""

CHANGES: dict[str, list[Change]] = {
    "expand": [
        ("k % beat.period == beat.offset\n\n", "k % beat.period == 0\n\n"),
        ("beat.start <= k < beat.until and", "beat.start < k < beat.until and"),
        ("Beat(low, high, when.every, when.every - 1)", "Beat(low, high, when.every, 0)"),
        ("[first] if when.first", "[0] if when.first"),
        ("[total - 1] if when.last", "[total] if when.last"),
        ("min(when.until, total)", "min(when.until + 1, total)"),
        ("maybe += narrowed(other.maybe, low, high)", "maybe += other.maybe"),
        ("steps |= other.steps", "steps = steps or other.steps"),
        ("else {k - ahead for k in one.steps}", "else {k + ahead for k in one.steps}"),
        ("(beat.offset - ahead) % beat.period", "beat.offset"),
        ("for early in range(-layout.ahead, 0):", "for early in range(-1, 0):"),
        ("gap &= CHUNK - 1", "gap &= CHUNK - 2"),
        ("events(high - rest, high, always, beats, kind)", "events(high - rest, high, always, beats[:1], kind)"),
        ("self.op(first + i, may=not bits & 1)", "self.op(first + i, may=bool(bits & 2))"),
    ],
    "lower": [
        ("stays=-1 if op.may else ~moved", "stays=~moved"),
        ("goes=sum(move.bit for move in moves)", "goes=sum(move.bit for move in moves[:1])"),
        ("lost |= move.cell if move.frees else 0", "lost |= move.cell"),
        ("lost |= move.cell if move.frees else 0", "lost |= 0"),
        ("entry, holding = entry & move.room, holding & move.swap", "holding &= move.swap"),
        ("entry, holding = entry & move.room, holding & move.swap", "entry &= move.room"),
        ("holding &= copy.held", "holding &= -1"),
        ("moved=0 if op.may else moved", "moved=moved"),
        ("given=0 if op.may else targets | lost", "given=targets | lost"),
        ("given=0 if op.may else targets | lost", "given=0 if op.may else targets"),
        ("sources | copy.source, targets | copy.target", "sources, targets | copy.target"),
        ("sources | copy.source, targets | copy.target", "sources | copy.source, targets"),
        ("if keep & move.part]", "]"),
    ],
    "check": [
        ("resource.at != \"none\" and name not in targets", "resource.at != \"none\""),
        ("(resource.carried and resource.at != \"none\"", "(resource.carried"),
        ("have |= 0 if op.may else copy.target", "have |= copy.target"),
        ("have & ~effect.lost", "have"),
        ("maybe & ~effect.lost", "maybe"),
        ("wrong = places & ~effect.holding", "wrong = 0"),
        ("if op.values & (have | maybe):\n", "if op.values & have:\n"),
        ("return places, have, maybe | op.makes & ~have", "return places, have | op.makes, maybe"),
        ("have, maybe = layout.shift(have), layout.shift(maybe)", "have, maybe = layout.shift(have), maybe"),
        ("have, maybe = layout.shift(have), layout.shift(maybe)", "have, maybe = have, layout.shift(maybe)"),
        ("~(have | maybe if op.may else have)", "~(have | maybe)"),
        ("places & ~op.stands or op.reads", "op.reads"),
        ("op.reads & ~have or op.values", "op.values"),
        ("or op.values & (have | maybe)):", "):"),
        ("if state.places & ~want:", "if False:"),
        ("if cell is not None and not state.have >> cell & 1:", "if False:"),
        ("if broken & bits:", "if False:"),
    ],
    "dead": [
        ("places &= layout.want(name, word)\n        cell", "cell"),
        ("cells |= 1 << cell\n", "cells |= 0\n"),
        (", cells & ~effect.given | effect.taken", ", cells & ~effect.given | op.reads"),
        (", cells & ~effect.given | effect.taken", ", cells & ~op.kills | effect.taken"),
        ("(wanted[i] | effect.moved) &", "wanted[i] &"),
        ("| effect.moved) & effect.wish,", "| effect.moved) & op.needs,"),
        ("| effect.moved) & effect.wish,", "| effect.moved) & effect.entry,"),
        ("sure if op.may else sure & ~effect.given", "sure & ~effect.given"),
        ("wanted[i] = places & effect.holding", "wanted[i] = places"),
        ("cells & ~op.kills | op.reads, sure", "cells | op.reads, sure"),
        ("sure & ~op.kills | op.reads\n", "sure | op.reads\n"),
        ("if keep & copy.part and cells & copy.target:", "if keep & copy.part:"),
        ("return keep if want or made else GONE", "return keep if made else GONE"),
        ("return keep if op.phase.whole else want", "return want"),
        ("sure & move.cell else 0", "move.cell else 0"),
        ("            places &= move.swap\n    return want", "            places &= places\n    return want"),
    ],
    "settled": [
        ("tokens[copy.to] = fresh if op.may else tokens[copy.of]", "tokens[copy.to] = tokens[copy.of]"),
        ("        tokens[cell] = 0\n    for copy", "        tokens[cell] = tokens[cell]\n    for copy"),
        ("tokens[cell] = fresh\n        fresh += 1", "tokens[cell] = fresh\n        fresh += 0"),
        ("tokens[cell] = fresh\n        fresh += 1", "fresh += 1"),
        ("move.field & ~aim.wanted[i]:", "move.field & ~move.bit:"),
        ("move.field & ~aim.wanted[i]:", "move.bit & ~aim.wanted[i]:"),
        ("and aim.live[i] & copy.target and new", "and new"),
        ("tokens[copy.of] != tokens[copy.to] or", "tokens[copy.of] == tokens[copy.to] or"),
        ("return keep if op.phase.whole or not op.handoff else use", "return use"),
        ("(op.handoff or aim.idle[i]) and not op.may and", "(op.handoff or aim.idle[i]) and"),
        ("(op.handoff or aim.idle[i]) and not op.may and", "op.handoff and not op.may and"),
        ("if have >> cell & 1 else 0 for", "for"),
        ("op.effect(new[i]).put(places)", "op.effect(op.parts).put(places)"),
    ],
    "least": [
        ("single and not chained and all(", "single and all("),
        ("single and not chained and all(", "not chained and all("),
        ("len(places) <= 2", "len(places) <= 3"),
        ("reach[name].add(place)", "reach[name].add(\"host\")"),
        ("if op.may and not now.removed and (op.moves or op.copies):", "if False:"),
        ("if op.may and not now.removed and (op.moves or op.copies):", "if op.may and (op.moves or op.copies):"),
        ("cost < best.cost", "cost > best.cost"),
        ("keep.bit_count() if op.handoff", "1 if op.handoff"),
        ("if keep != GONE and not (op.handoff or sees(op, tokens, now.before)):", "if False:"),
        ("    if places & ~effect.entry:\n        return None\n    places, have", "    places, have"),
        ("return not places & ~wants.places and same", "return same"),
        ("return not places & ~wants.places and same", "return not places & ~wants.places"),
        ("    if op.phase.whole:\n        yield op.parts\n        return\n", ""),
        ("cost - base", "cost"),
    ],
    "order": [
        ("found |= self.writers.get(key, frozenset())", "found |= set()"),
        ("found |= self.readers.get(key, frozenset())", "found |= set()"),
        ("reads | copy.source, writes | copy.target", "reads, writes | copy.target"),
        ("reads | copy.source, writes | copy.target", "reads | copy.source, writes"),
        ("| {(1, move.at) for move in moves}", ""),
        ("given |= {(3, op.phase.component or f\"phase {op.name}\")}", "given |= {(3, op.name)}"),
        ("op.phase.component or f\"phase {op.name}\"", "op.phase.component"),
        ("kind == \"sink\"}", "kind == \"stream\"}"),
        ("set(self.released) if one.puts else set()", "set()"),
        ("sorted(waits - implied,", "sorted(waits,"),
        ("readers.get(key, frozenset()) | me", "frozenset(me)"),
        ("spread(layout, effect.entry & effect.holding)", "spread(layout, op.needs)"),
        ("aged(layout, self.writers, step), aged", "(), aged"),
        (", aged(layout, self.readers, step)", ", ()"),
        ("age(self.released, self.ancestors), ages", "frozenset(), ages"),
        ("cells = layout.shift(1 << which)", "cells = 1 << which"),
        ("1 + max((depth.get(other, 0) for other in waits), default=0)", "1 + len(waits)"),
    ],
}  # fmt: skip


def checkout(folder: Path) -> Path:
    """All that the tests need, as it is now: what changes meanwhile changes nothing here."""
    for name in ("stepgraph", "graphs", "conf", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@contextmanager
def broken(folder: Path, name: str, change: Change) -> Iterator[None]:
    """One change, for as long as it takes."""
    path = folder / "stepgraph" / "compiler" / f"{name}.py"
    old, new = change
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise SystemExit(f"{name}.py has {text.count(old)} times: {old!r}. Mend tests/mutants.py")
    path.write_text(text.replace(old, new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def noticed(folder: Path) -> str:
    """The first test that fails against the package in ``folder``; empty where none does."""
    words = ["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no", PROFILE, *FAST]
    paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *words]
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end after {LONGEST:g} s"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode and not found:
        raise SystemExit(f"the tests did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found[1] if found else ""


def tried(folder: Path, name: str, change: Change) -> bool:
    """Make one change, and tell who noticed."""
    with broken(folder, name, change):
        found = noticed(folder)
    old, new = (text.strip().splitlines()[0] if text.strip() else "nothing" for text in change)
    print(f"{'caught' if found else 'MISSED':<7} {name}: {old}  ->  {new}\n        {found}".rstrip(), flush=True)
    return bool(found)


def main(names: list[str]) -> int:
    with tempfile.TemporaryDirectory() as place:
        folder = checkout(Path(place))
        if found := noticed(folder):
            raise SystemExit(f"{found} fails without any change")
        results = [tried(folder, name, change) for name in names or CHANGES for change in CHANGES[name]]
    print(f"{sum(results)} of {len(results)} noticed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
