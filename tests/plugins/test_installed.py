"""Packages that offer phases and components: found by name, listed with versions, and broken for nobody else."""

from __future__ import annotations

import sys

import pytest

from stepgraph.errors import ConfigError
from stepgraph.registry import plugins, resolve
from stepgraph.testing import plan_of, steps_of

from .conftest import Install, Type

PHASES = "[stepgraph.phases]\nlength_audit = audit_{n}:length_audit\n"
AUDIT = """
from stepgraph import phase

@phase(reads=["rollouts"], writes=["report"], when={"every": 2})
def length_audit(rollouts):
    return {"report": max(len(r.tokens) for r in rollouts)}
"""


def test_an_installed_phase_is_named_and_not_imported_for_a_plan(install: Install) -> None:
    install("audit", "1.2", PHASES.format(n="a"), audit_a=f"raise SystemExit\n{AUDIT}")
    assert steps_of(plan_of("grpo", "graph.step.audit.use=length_audit", steps=4), "audit") == [1, 3]
    assert "audit_a" not in sys.modules


def test_a_name_that_two_packages_offer_is_told_apart_by_its_target(install: Install) -> None:
    install("one", "1.0", PHASES.format(n="b"), audit_b=AUDIT)
    install("two", "2.0", PHASES.format(n="c"), audit_c=AUDIT)
    with pytest.raises(ConfigError) as caught:
        plan_of("grpo", "graph.step.audit.use=length_audit")
    assert str(caught.value).startswith("step.audit: 'length_audit' is offered by ")
    assert "one 1.0 (audit_b:length_audit)" in str(caught.value)
    assert steps_of(plan_of("grpo", "graph.step.audit.use=audit_c:length_audit", steps=2), "audit") == [1]


def test_a_name_that_is_nearly_one_gets_a_hint(install: Install) -> None:
    install("audit", "1.2", PHASES.format(n="d"), audit_d=AUDIT)
    with pytest.raises(ConfigError, match="nothing is called 'lenght_audit', did you mean 'length_audit'"):
        plan_of("grpo", "graph.step.audit.use=lenght_audit")


def test_a_broken_plugin_breaks_only_who_names_it(install: Install) -> None:
    install("audit", "1.2", PHASES.format(n="e"), audit_e=AUDIT)
    install("bad", "0.1", "[stepgraph.phases]\nbad = bad_e:run\n", bad_e="import no_such_thing\nx = 1\n")
    assert steps_of(plan_of("grpo", "graph.step.audit.use=length_audit", steps=2), "audit") == [1]
    with pytest.raises(ConfigError, match="'bad' cannot be imported: ModuleNotFoundError"):
        plan_of("grpo", "graph.step.a.use=bad")


def test_plugins_are_listed_with_version_and_import_error(install: Install, typed: Type) -> None:
    install("audit", "1.2", PHASES.format(n="f"), audit_f=AUDIT)
    components = "[stepgraph.components]\necho = bad_f:Echo\n"
    install("bad", "0.1", f"[stepgraph.phases]\nbad = bad_f:run\n{components}", bad_f="raise OSError('no\\ncheese')\n")
    done = typed("show", "plugins")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert "  length_audit  audit 1.2  audit_f:length_audit  (reads rollouts; writes report)" in lines
    assert "  bad           bad 0.1  bad_f:run  BROKEN: cannot be imported: OSError: no cheese" in lines
    assert lines[0] == "stepgraph.components"
    assert "  echo          bad 0.1  bad_f:Echo  BROKEN: cannot be imported: OSError: no cheese" in lines


def test_no_plugins_are_told_as_well(monkeypatch: pytest.MonkeyPatch, typed: Type) -> None:
    monkeypatch.setattr("stepgraph.cli.plugins.installed", list)
    assert typed("show", "plugins").out.startswith("no plug-ins are installed (entry points stepgraph.phases,")


def test_a_component_is_an_entry_point_too(install: Install) -> None:
    site = install("echo", "3.0", "[stepgraph.components]\necho = echo_g:Echo\n", echo_g="class Echo: ...\n")
    assert resolve("echo", "component 'engine'", "stepgraph.components").__name__ == "Echo"
    assert [one.package for one in plugins() if one.target == "echo_g:Echo"] == ["echo 3.0"]
    assert site.is_dir()
