"""Tasks and launchers are Peergate's own, or brought by a distribution that is installed."""

from __future__ import annotations

from collections.abc import Iterator

from specs import plugins
from specs.resources import LAUNCHERS
from specs.session.problems import LintProblem, Loc, suggest
from specs.session.session_spec import SessionSpec
from specs.stages.stage import TASKS


def lint_plugins(spec: SessionSpec) -> Iterator[LintProblem]:
    """Every task and launcher that is named is there."""
    named: list[tuple[Loc, str, plugins.Group, tuple[str, ...]]] = [
        (("task",), spec.task, "peergate.tasks", TASKS),
        (("launcher",), spec.launcher, "peergate.launchers", LAUNCHERS),
    ]
    for index, stage in enumerate(spec.stages):
        if scorer := getattr(stage.parameters, "scorer", None):
            named.append((("stages", index, "parameters", "scorer"), scorer, "peergate.tasks", TASKS))
        if stage.launcher is not None:
            named.append((("stages", index, "launcher"), stage.launcher, "peergate.launchers", LAUNCHERS))
    for loc, name, group, own in named:
        known = (*own, *(one.name for one in plugins.installed(group)))
        if name not in known:
            yield LintProblem(
                loc, f"unknown {group.removeprefix('peergate.')[:-1]} '{name}'", suggest(name, known, "known")
            )
