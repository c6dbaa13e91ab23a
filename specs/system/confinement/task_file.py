"""A task in a file next to the spec (``task: ./verify.py``): registered with its text, run under its digest.

A registered spec and an order carry the text; the file is reread only to see whether it changed. Its code runs in
a separate process (``specs/system/confinement/verifier_process.py``). Reading a stranger's run must run none of it:
a text runs only if this user named the file in a spec (``start``, ``spec check``) or a job was ordered to run it. What
is trusted is a pair, the text and whether it needs a sandbox: a run that says ``sandbox: false`` changes nothing. Only
processes that run a session honour ``sandbox: false``, and only for a pair that this user started or signed.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from specs.system import plugins
from specs.system.confinement.verifier_command import VerifierLimits
from specs.system.digests import digest_bytes
from specs.system.errors import PluginFault, Problem, SpecError
from specs.system.masking import current
from specs.system.text import plain
from specs.system.yaml.problems import printable

MAX_BYTES = 256 * 1024
PARTS = {"verify": ("item", "answer"), "worked_example": ("item",), "known_answers": ()}
"""The functions of a task with their arguments; all but ``verify`` are optional."""
_TEXTS: dict[str, str] = {}
_LIMITS: dict[str, VerifierLimits] = {}
_ALLOWED: set[tuple[str, bool]] = set()


class TaskFault(PluginFault):
    """A task file that cannot be used, with the place in it."""

    def __init__(self, message: str, path: str, line: int, column: int = 1, hint: str = "") -> None:
        super().__init__(message, where=f"{path}:{line}", hint=hint)
        self.place = (path, line, column)

    def problem(self, folder: Path) -> Problem:
        """Return it as a problem of the file, which is below a folder."""
        path, line, column = self.place
        return Problem(str(folder / path), line, column, "", printable(self.message))


def is_file(task: str) -> bool:
    """Return whether a task is a file next to the spec, and not a name."""
    return task.startswith("./")


def path_of(task: str) -> str:
    """Return the path of a task file, without its digest."""
    return task.partition("@")[0]


def pin_task(path: str, text: str) -> str:
    """Return the name of a task file with the digest of its text."""
    return f"{path}@{digest_bytes(text.encode())}"


def text_of(path: Path, raw: bytes) -> str:
    """Return the text of a task file; raises SpecError if it is too long, no text, or holds a secret."""
    if len(raw) > MAX_BYTES:
        raise SpecError([Problem(str(path), 1, 1, "", f"the file is larger than {MAX_BYTES} bytes")])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecError([Problem(str(path), line, 1, "", "the file is not UTF-8 text")]) from error
    require_no_secret(path, text)
    return text


def require_no_secret(path: Path, text: str) -> None:
    """Raise SpecError where the trail would keep a secret, and report nothing else, which could quote it."""
    hint = "take it out of the file; keys are read from variables of the environment"
    results = [
        (start, text.rfind("\n", 0, start), f"here begins a secret ({what})") for start, what in current().places(text)
    ]
    if results:
        raise SpecError(
            [
                Problem(str(path), text.count("\n", 0, at) + 1, at - end, "", message, hint)
                for at, end, message in results
            ]
        )


def remember(task: str, text: str | None, limits: VerifierLimits) -> None:
    """Keep a task's limits, and a file's text; raises ValueError if the name pins another text."""
    if (text is None and is_file(task)) or (text is not None and pin_task(path_of(task), text) != task):
        raise ValueError("the text of the task file is not the registered one")
    remember_limits(task, limits)
    if text is not None:
        _TEXTS[task] = text


def remember_limits(task: str, limits: VerifierLimits) -> None:
    """Keep the limits of a task that another distribution brings."""
    _LIMITS[task] = limits


def limits_of(task: str) -> VerifierLimits:
    """Return the limits of a task's verifier, as the spec or order that was read last registers them."""
    return _LIMITS.get(task, VerifierLimits())


def trust(task: str, *, sandbox: bool = True) -> None:
    """Let this user's processes run a task from now on: the user checked, started or signed a spec that names it.

    Called after that succeeded, never with what is read from a run. ``sandbox`` is False if the user's spec allows to
    run it without one.
    """
    allow(task, sandbox=sandbox)
    keep_mark("task_files", _mark(task, sandbox))


def allow(task: str, *, sandbox: bool = True) -> None:
    """Let this process run a task; ``sandbox`` is False if it may do so without one."""
    _ALLOWED.add((task, sandbox))


def recall(task: str) -> None:
    """Let this process, which runs a session, run a task without a sandbox if this user's own spec allows that."""
    if has_mark("task_files", _mark(task, False)):
        allow(task, sandbox=False)


def is_trusted(task: str) -> bool:
    """Return whether this process may run a task in a sandbox: any but a file that this user has not named."""
    return not is_file(task) or any(
        (task, sandbox) in _ALLOWED or has_mark("task_files", _mark(task, sandbox)) for sandbox in (True, False)
    )


def may_run_unconfined(task: str) -> bool:
    """Return whether this process may run a task without a sandbox."""
    return (task, False) in _ALLOWED


def _mark(task: str, sandbox: bool) -> str:
    digest = task.rpartition(":")[2] if "@sha256:" in task else digest_bytes(task.encode()).rpartition(":")[2]
    return digest if sandbox else f"{digest}.unconfined"


def trusted_text(task: str) -> str:
    """Return the text of a task file that this process may run.

    Raises:
        KeyError: no one has read a spec or an order with this task.
        TaskFault: the user has not named this file.
    """
    path, text = path_of(task), _TEXTS[task]
    if not is_trusted(task):
        hint = (
            "it came with the run: read it there (`task_text`), then `peergate spec check` a spec that names the file"
        )
        raise TaskFault(
            "the code of this task file is not run: no spec that was checked here names it", path, 1, hint=hint
        )
    return text


@cache
def module_of(task: str) -> ModuleType:
    """Run a task file, once a process, and return its module: only the process of its verifier does this.

    Raises:
        KeyError, TaskFault: as :func:`trusted_text`, or it is not Python, raises, takes too long, or has no ``verify``.
    """
    path, text = path_of(task), trusted_text(task)
    try:
        code = compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise TaskFault(syntax_fault(error, text), path, error.lineno or 1, error.offset or 1) from error
    except ValueError as error:
        raise TaskFault(f"not valid Python: {error}", path, 1) from error
    module = ModuleType(f"peergate_task_{task[-64:]}")
    # Annotations of models are looked up there.
    sys.modules[module.__name__] = module
    try:
        plugins.run_bounded(lambda: exec(code, module.__dict__), path)
    except PluginFault as fault:
        del sys.modules[module.__name__]
        line = plugins.line_of(fault.__cause__, path.__eq__).rpartition(":")[2]
        message = plain(fault.message, 300) + reach_in_words(fault.__cause__)
        raise TaskFault(message, path, int(line or 1)) from fault
    for name, form in PARTS.items():
        if (wrong := wrong_form(module, name, form)) and (name == "verify" or hasattr(module, name)):
            raise TaskFault(wrong, path, _find_definition_line(text, name))
    return module


def reach_in_words(error: BaseException | None) -> str:
    """Return that a task file reaches no other file, where an error comes from that; else an empty text."""
    place = isinstance(error, NameError) and error.name in ("__file__", "__spec__")
    if not place and not isinstance(error, ModuleNotFoundError | FileNotFoundError | NotADirectoryError):
        return ""
    alone = "; it may import installed packages, and reads no other file, since none is registered: write what it"
    return f"{alone} needs into it, or into the fields of the items"


def wrong_form(module: Any, name: str, form: tuple[str, ...]) -> str:
    """Return why a task's function cannot be called with these arguments; empty if it can."""
    message = f"{name}({', '.join(form)})"
    part: Any = getattr(module, name, None)
    if not callable(part):
        return f"has no function {message}"
    try:
        signature = inspect.signature(part)
    except ValueError:  # Of something built in: it shows when it is called.
        return ""
    try:
        signature.bind(*form)
    except TypeError as error:
        return f"its function {name}{signature} cannot be called as {message}: {error}"
    return ""


def _find_definition_line(text: str, name: str) -> int:
    """Return the line in which a name is given its last meaning; 1 if it is not."""
    lines = [1]
    for node in ast.parse(text).body:
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        if getattr(node, "name", None) == name or any(getattr(target, "id", None) == name for target in targets):
            lines.append(node.lineno)
    return lines[-1]


Kind = Literal["task_files", "databases"]


def keep_mark(kind: Kind, name: str) -> None:
    """Keep a mark. Where the folder cannot be written, only the process that asks knows of it."""
    with suppress(OSError):
        path = _place(kind, name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch()


def has_mark(kind: Kind, name: str) -> bool:
    """Return whether this user has kept a mark."""
    return _place(kind, name).is_file()


def _place(kind: Kind, name: str) -> Path:
    # Slow, and not needed by who keeps no marks.
    import platformdirs

    return platformdirs.user_state_path("peergate") / kind / name


HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
_NEWER: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("3.12", re.compile(r"\s*type\s+\w+\s*(\[[^\]]*\])?\s*=")),
    ("3.12", re.compile(r"\s*(async\s+def|def|class)\s+\w+\s*\[")),
    ("3.14", re.compile(r"\s*except\*?\s+[\w.]+\s*,\s*[\w.]+(\s*,\s*[\w.]+)*\s*:")),
    ("3.14", re.compile(r"[^#]*\b[tT][rR]?['\"]|[^#]*\b[rR][tT]['\"]")),
    ("3.12", re.compile(r"[^#]*\b[fF][rR]?['\"].*\{.*['\"\\]|[^#]*\b[rR][fF]['\"].*\{.*['\"\\]")),
)
"""How lines look that an earlier Python refuses: aliases of types, type parameters, `except` without parentheses,
template strings, and quotes or backslashes inside the braces of a formatted string."""


def newer_version(error: SyntaxError, text: str) -> str:
    """Return the Python version that reads what this one refuses; empty where the text is wrong in every version."""
    lines = text.splitlines()
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    version = next((version for version, form in _NEWER if form.match(line)), "")
    return version if version and tuple(map(int, version.split("."))) > sys.version_info[:2] else ""


def syntax_fault(error: SyntaxError, text: str) -> str:
    """Return in words why a text is not a Python that can run here."""
    version = newer_version(error, text)
    if version:
        return f"needs Python {version} or newer, and Python {HERE} runs it: {error.msg}"
    return f"not valid Python: {error.msg}"
