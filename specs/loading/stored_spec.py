"""Reads back the spec that a session registered; apart from the loader, because a trail's readers read no YAML."""

from __future__ import annotations

import json
from contextlib import suppress

from pydantic import ValidationError

from specs.session.session_spec import ResolvedSpec
from specs.stages.explain import explain
from specs.system import plugins
from specs.system.errors import AuditDamage, PluginFault
from specs.system.text import plain
from specs.system.yaml.problems import format_loc


def missing_plugins(resolved: str | bytes) -> str:
    """Return in words which plug-ins a saved spec registered that are not installed here; empty if none is missing.

    Raises:
        ValueError: this is not JSON.
        AttributeError: this is not a mapping with a mapping of plug-ins.
    """
    registered = json.loads(resolved).get("plugins", {})
    brought = {
        plugins.key_of(entry_point) for group in plugins.GROUPS for entry_point in plugins.find_entry_points(group)
    }
    return plain("; ".join(f"{what} ({then})" for what, then in registered.items() if what not in brought), 400)


def read_resolved(text: str | bytes) -> ResolvedSpec:
    """Read back, strictly, what ``ResolvedSpec.canonical()`` wrote.

    Raises:
        PluginFault: a plug-in that it registers is not installed here.
        AuditDamage: it is not a resolved spec. Peergate wrote one, so it has changed since.
    """
    try:
        return ResolvedSpec.model_validate_json(text, strict=True)
    except ValidationError as error:
        with suppress(ValueError, AttributeError, RecursionError):
            if missing := missing_plugins(text):
                raise PluginFault(f"not installed here: {missing}", hint="install what was registered") from error
        lint_problem = explain(error.errors(include_url=False)[0], ResolvedSpec)
        raise AuditDamage(
            f"this is not a resolved spec: {format_loc(lint_problem.loc)}: {lint_problem.message}",
            hint="it was changed, or another version of Peergate wrote it: `peergate audit verify` says which",
        ) from error
