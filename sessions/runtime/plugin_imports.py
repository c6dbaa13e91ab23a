"""Imports what a spec uses of other distributions, in a process that may hang or end, before anything is paid for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from reviews.gate.check_list import offered_checks
from reviews.stages.judge import judge_of
from specs.loading.stored_spec import read_resolved
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.kind import StageKind
from specs.stages.registry import kind_of
from specs.system import plugins
from specs.system.errors import PeergateError, PluginFault

SECONDS = 120.0
"""The longest that importing them all may take; a job may import torch at its top."""


def require_importable(*specs: ResolvedSpec, seconds: float = SECONDS) -> None:
    """Import judges, jobs and checks of the plug-ins that specs name, in a child process, or raise PluginFault."""
    # Profiles of one spec mostly use the same.
    for resolved in {str(spec.plugins): spec for spec in specs if spec.plugins}.values():
        _require(resolved, seconds)


def _require(resolved: ResolvedSpec, seconds: float) -> None:
    command = [sys.executable, "-P", "-m", "sessions.runtime.plugin_imports"]
    try:
        done = subprocess.run(command, input=resolved.canonical(), capture_output=True, timeout=seconds, check=False)
        printed, ended = done.stdout, f"ends the process that imports it (exit code {done.returncode})"
    except subprocess.TimeoutExpired as error:
        printed, ended = error.stdout or b"", f"takes more than {seconds:g} s to import"
    _, marked, last = printed.rpartition(MARK)
    statements: dict[str, str] = json.loads(last.partition(b"\n")[0]) if marked else {}
    if statements.get("message") != DONE:
        hint = statements.get("hint", "fix or uninstall that distribution")
        raise PluginFault(statements.get("message", ended), where=statements.get("where", "plug-ins"), hint=hint)


MARK = b"\npeergate plug-ins: "
"""Begins a line of the child; plug-ins may print at import what they like."""
DONE = "all were imported"


def _say(**statements: str) -> None:
    sys.stdout.flush()
    os.write(1, MARK + json.dumps(statements).encode() + b"\n")


def main() -> None:
    """Import what the spec on the standard input uses; says what is being imported, and at last what is wrong."""
    resolved = read_resolved(sys.stdin.buffer.read())
    try:
        for kind in {stage.kind: kind_of(stage) for stage in resolved.spec.stages}.values():
            if kind.plugin:
                _say(where=f"{kind.plugin}, the judge of stage kind '{kind.name}'")
                judge_of(kind)
                _require_job(kind)
        _say(where="checks of other distributions")
        offered_checks(resolved)
        _say(message=DONE)
    except PeergateError as error:
        _say(message=error.message, where=error.where, hint=error.hint)
    # What a plug-in left running ends here too.
    os._exit(0)


def _require_job(kind: StageKind) -> None:
    where = f"{kind.plugin}, the job of stage kind '{kind.name}'"
    _say(where=where)
    for named in (
        kind.job,
        kind.witness_prompts,
        kind.replay_job,
        kind.logprob_outputs.by if kind.logprob_outputs else "",
    ):
        if named:
            _callable_at(named, where)


def _callable_at(named: str, where: str) -> None:
    module, _, name = named.partition(":")
    try:
        function: Any = getattr(import_module(module), name, None)
    except BaseException as error:
        missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if missing in plugins.HEAVY and find_spec(missing) is None:
            return  # Jobs may run on another machine, which has it.
        raise plugins.broken(error, where) from error
    if not callable(function):
        raise PluginFault(f"{module} has no function {name or 'named after a colon'}", where=where)


if __name__ == "__main__":
    main()
