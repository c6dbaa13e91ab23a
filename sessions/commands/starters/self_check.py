"""What `spec check` would say of a new experiment, before any of its files is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sessions.runtime.preflight import data_fit, design_forecast
from specs.loading.loading import EXPERIMENT, load_spec
from specs.system.errors import PluginFault, SpecError, UserError
from specs.system.text import plain
from specs.trail.verdict import CheckResult


def _example(check: CheckResult) -> str:
    """Return the text of the first row that a check shows: its id says little to who did not give it."""
    row = next(iter(check.rows), {})
    text = row.get("text") or row.get("heldout_text")
    return f'; such as "{plain(str(text), 160)}"' if text else ""


def _reasons_of(checks: Sequence[CheckResult]) -> list[str]:
    """Return why checks close the gate: what one fault broke alike is one reason."""
    names: dict[str, list[str]] = {}
    for check in checks:
        names.setdefault(f"{check.detail}{_example(check)}", []).append(check.id)
    return [f"{', '.join(ids)}: {detail}" for detail, ids in names.items()]


def require_accepted(files: dict[str, bytes], folder: Path, data: Path | None) -> list[str]:
    """Run the design gate on the files of a new experiment and return in words what could not be checked here.

    Raises:
        SpecError: the spec or its rows have problems, with their places.
        UserError: the gate rejects the design, or the rows do not fit the model; with every reason.
    """
    where = "the sample rows" if data is None else str(data)
    with TemporaryDirectory() as name:
        temporary = Path(name)
        for file, text in files.items():
            (temporary / file).write_bytes(text)
        try:
            resolved = load_spec(temporary / EXPERIMENT)
        except SpecError as error:
            moved = [replace(problem, path=problem.path.replace(name, str(folder))) for problem in error.problems]
            raise SpecError(moved) from error
        except PluginFault as error:
            return [f"not checked here: {error.message}; `peergate spec check` says the rest"]
        forecast = design_forecast(resolved)
        reasons = _reasons_of([check for check in forecast.checks if check.closes])
        if forecast.exit_code and not reasons:
            reasons += forecast.decision.reasons
        reasons += [f"{fault.message} ({fault.hint})" for fault in data_fit(resolved, folder) if fault.closing]
    if reasons:
        hint = "nothing was written"
        raise UserError("\n  ".join(["`start` would refuse these rows:", *reasons]), where=where, hint=hint)
    return []
