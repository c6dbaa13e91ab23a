"""Which plug-ins a spec uses, by their identity: a changed one is another registration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specs import plugins
from specs.errors import PluginFault
from specs.session.session_spec import SessionSpec


def used_plugins(spec: SessionSpec) -> dict[str, str]:
    """Return what the spec uses of other distributions, with the identity of each as it is now.

    Raises:
        PluginFault: files of one cannot be read, or several distributions bring the same.
    """
    named = {f"{group} {name}": plugins.find(group, name) for group, name in _named(spec)}
    return {what: plugins.identity(point) for what, point in sorted(named.items()) if point is not None}


def _named(spec: SessionSpec) -> Iterator[tuple[plugins.Group, str]]:
    yield "peergate.tasks", spec.task
    for reviewer in spec.reviewers():
        if reviewer.is_plugin:
            yield "peergate.reviewers", reviewer.vendor
    for stage in spec.stages:
        yield "peergate.stages", stage.kind
        yield "peergate.launchers", spec.launcher_of(stage.name)
        if scorer := getattr(stage.parameters, "scorer", None):
            yield "peergate.tasks", scorer


def require_unchanged(registered: Mapping[str, str]) -> None:
    """Refuse to continue with plug-ins other than the registered ones.

    Raises:
        PluginFault: one is gone or has changed since.
    """
    for what, then in registered.items():
        group, _, name = what.partition(" ")
        known: plugins.Group | None = next((one for one in plugins.GROUPS if one == group), None)
        point = plugins.find(known, name) if known else None
        now = plugins.identity(point) if point else "not installed"
        if now != then:
            told = f"'{name}' of {group} is {now}, registered was {then}"
            raise PluginFault(told, hint="install what was registered, or start a new session")
