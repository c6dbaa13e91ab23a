"""A task file of lm-eval as a registered script: its YAML with the files that it names, and nothing of them run.

The script is Python that only holds texts, so that it is registered, read by reviewers and limited as any other. Which
data the file names does not count: a job gives the library the stage's items.
"""

from __future__ import annotations

import ast
import pprint
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specs.system.confinement import task_file
from specs.system.digests import digest_bytes
from specs.system.errors import Problem, SpecError
from specs.system.regular_files import read_regular
from specs.system.yaml.problems import LintProblem, Loc, suggest
from specs.system.yaml.yaml_positions import PYYAML, Document, read_document

SUFFIXES = (".yaml", ".yml")
WRITES = "generate_until"
_ELSEWHERE = {
    "multiple_choice": "kind: multiple_choice with lm_eval_task scores such tasks",
    "loglikelihood": "kind: multiple_choice scores choices",
    "loglikelihood_rolling": "kind: perplexity reads texts",
}
_FUNCTION = "!function"
_NAMED = re.compile(rf"{_FUNCTION} ([A-Za-z_]\w*)\.[A-Za-z_]\w*")
_DIALECT = PYYAML._replace(tags=(_FUNCTION,))
_TEMPLATES = ("doc_to_text", "doc_to_target", "doc_to_choice", "description", "gen_prefix")
"""Settings that are templates over the fields of an item, or the name of one."""
_INCLUDES = 4
"""Files that may include one another in a row."""


class TaskFiles(NamedTuple):
    """What a registered script holds."""

    main: str
    texts: dict[str, str]
    """The files by name: the YAML, the files it includes, and its Python files."""


def is_task_file(path: str) -> bool:
    """Return whether a script's name is that of a task file."""
    return path.endswith(SUFFIXES)


def as_script(path: Path, raw: bytes, task: str, max_new_tokens: int) -> str:
    """Return the script that a task file becomes, for the task of this name.

    Raises:
        SpecError: it is not a task that writes, has another name, or needs what a job cannot give; with each place.
    """
    read = _Reader(path)
    settings = read.settings(path.name, raw)
    if problems := list(_problems(settings, task, max_new_tokens)):
        raise read.documents[path.name].error(path, problems)
    listed = ", ".join(f"{name} ({digest_bytes(text.encode())})" for name, text in read.texts.items())
    texts = pprint.pformat(read.texts, width=110, sort_dicts=False)
    return f'"""The task {task} of lm-eval: {listed}."""\n\nMAIN = {path.name!r}\nFILES = {texts}\n'


def files_of(script: str) -> TaskFiles:
    """Return the files that a registered script holds; raises ValueError if :func:`as_script` did not make it."""
    results: dict[str, Any] = {}
    for stmt in ast.parse(script).body:
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
            results[stmt.targets[0].id] = ast.literal_eval(stmt.value)
    if set(results) != {"MAIN", "FILES"}:
        raise ValueError("the script holds no task of lm-eval")
    return TaskFiles(results["MAIN"], results["FILES"])


def settings_of(files: TaskFiles) -> dict[str, Any]:
    """Return the settings of a registered task, what it includes first; functions are texts that begin ``!function``.

    Raises SpecError if a file is not YAML.
    """
    read = _Reader(Path(files.main), files.texts)
    return read.settings(files.main, files.texts[files.main].encode())


class _Reader:
    """Reads task files and what they name; ``texts`` collects it."""

    def __init__(self, path: Path, arguments: Mapping[str, str] | None = None) -> None:
        self._path, self._values = path, arguments
        self.texts: dict[str, str] = {}
        self.documents: dict[str, Document] = {}

    def settings(self, name: str, raw: bytes, depth: int = 0) -> dict[str, Any]:
        here = self._path.parent / name
        document = read_document(here, raw, _DIALECT)
        if problems := list(_outside((), document.data)):
            raise document.error(here, problems)
        self.documents[name] = document
        self.texts[name] = raw.decode()
        results: dict[str, Any] = {}
        for value in _as_list(document.data.get("include")):
            if depth == _INCLUDES:
                raise document.error(here, [LintProblem(("include",), "includes itself, or too many files in a row")])
            results |= self.settings(str(value), self._beside(document, here, "include", str(value)), depth + 1)
        results |= {key: value for key, value in document.data.items() if key != "include"}
        for module in sorted(set(_NAMED.findall(repr(_plain(document.data))))):
            file = f"{module}.py"
            self.texts[file] = self._beside(document, here, "", file).decode("utf-8", "replace")
        return results

    def _beside(self, document: Document, here: Path, key: str, name: str) -> bytes:
        """Return a file that lies next to the task's; raises SpecError."""
        loc = (key,) if key else ()
        if "/" in name or name.startswith("."):
            message = f"'{name}' is not a file next to this one"
            raise document.error(
                here, [LintProblem(loc, message, "copy it there: only files next to the task are registered")]
            )
        if self._values is not None:
            return self._values.get(name, "").encode()
        try:
            raw = read_regular(self._path.parent / name)
        except OSError as error:
            message = f"the file '{name}', which it names, cannot be read: {error.strerror}"
            raise SpecError([Problem(str(here), 1, 1, key, message, "it has to lie next to this file")]) from error
        task_file.require_no_secret(self._path.parent / name, raw.decode("utf-8", "replace"))
        return raw


def _outside(loc: Loc, value: Any) -> Iterator[LintProblem]:
    """Yield a problem for each function that is not one of a file next to the task's."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _outside((*loc, key), inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _outside((*loc, place), inner)
    elif isinstance(value, str) and value.startswith(f"{_FUNCTION} ") and not _NAMED.fullmatch(value):
        named = value.removeprefix(_FUNCTION).strip()
        hint = "write !function FILE.NAME, of FILE.py next to this one"
        yield LintProblem(loc, f"'{named}' is not a function of a file next to this one", hint)


def lacking_fields(settings: Mapping[str, Any], documents: Sequence[Mapping[str, Any]]) -> Iterator[LintProblem]:
    """Yield a problem for each field that a template reads and that documents of a job have not.

    A task whose own function makes the documents may add fields, so nothing is said of it.
    """
    if not documents or settings.get("process_docs") is not None:
        return
    known = frozenset[str]().union(*documents)
    for key in _TEMPLATES:
        text = settings.get(key)
        if not isinstance(text, str) or text.startswith(f"{_FUNCTION} ") or text in known:
            continue
        names = _fields(text)
        for name in sorted(names):
            lacking = sum(name not in document for document in documents)
            if lacking and not re.search(rf"\b{re.escape(name)}\s+is\s+(not\s+)?defined", text):
                message = f"reads the field '{name}', which {lacking} of {len(documents)} items have not"
                yield LintProblem((key,), message, suggest(name, sorted(known), "items have"))
        if key == "doc_to_text" and not names:
            message = f"reads no field: every item would be asked '{text.strip()[:40]}'"
            yield LintProblem((key,), message, f"such as {{{{prompt}}}}; {suggest(text, sorted(known), 'items have')}")


def _fields(template: str) -> set[str]:
    """Return the names that a template reads; empty if it cannot be parsed, which the library reports."""
    # Imported here: few specs name such a task.
    import jinja2.meta

    try:
        return jinja2.meta.find_undeclared_variables(jinja2.Environment().parse(template))
    except (jinja2.TemplateSyntaxError, RecursionError):
        return set()


def document_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a task's templates read of an item: its own fields win over ours."""
    named = {"group": item["group"], "kind": item["kind"], "prompt": item["prompt"], "question": item["prompt"]}
    return named | dict(item["constraint"]) | {"id": item["id"]}


def _problems(settings: Mapping[str, Any], task: str, most: int) -> Iterator[LintProblem]:
    named, kind = settings.get("task"), settings.get("output_type", WRITES)
    if "class" in settings or isinstance(named, list) or "group" in settings:
        yield LintProblem((), "is a group or a class of the library, not one task", "name a file of a single task")
    elif named != task:
        yield LintProblem(("task",), f"the task is '{named}', the stage names '{task}'", "write the same name in both")
    if kind != WRITES:
        hint = _ELSEWHERE.get(str(kind), f"output_type: {WRITES}")
        yield LintProblem(("output_type",), f"is {kind}, this kind of stage has the model write ({WRITES})", hint)
    shots, fewshot_config = settings.get("num_fewshot") or 0, settings.get("fewshot_config")
    if shots and not (isinstance(fewshot_config, Mapping) and fewshot_config.get("samples")):
        message = f"{shots} worked examples would come from the held-out items themselves"
        hint = "num_fewshot: 0, or the examples under fewshot_config: {sampler: first_n, samples: [...]}"
        yield LintProblem(("num_fewshot",), message, hint)
    wanted = settings.get("generation_kwargs")
    tokens = wanted.get("max_gen_toks") if isinstance(wanted, Mapping) else None
    if isinstance(tokens, int) and tokens > most:
        message = f"asks for {tokens} tokens, the stage grants max_new_tokens {most}"
        yield LintProblem(("generation_kwargs", "max_gen_toks"), message, f"max_new_tokens: {tokens} in the stage")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(element) for key, element in value.items()}
    return [_plain(element) for element in value] if isinstance(value, list) else value
