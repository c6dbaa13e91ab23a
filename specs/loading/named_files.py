"""The files that a spec names: constitution, data, task and scripts, read with every problem they have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from specs.benchmarks import lm_eval_file
from specs.data.registered import RegisteredData, read_registered
from specs.data.tables import MAX_DATA_BYTES, digest_of, size_of
from specs.lint.item_rules import ANSWERED, verified_by, without_answers
from specs.lint.rules import lint_constitution
from specs.lint.trainer_rules import training_inputs
from specs.session.acceptance import Companion
from specs.session.constitution import Constitution
from specs.session.design import DataFile, HeldOut
from specs.session.item_lines import at_most, check_items
from specs.session.session_spec import SessionSpec, select_columns
from specs.stages.base.stage import TASKS
from specs.stages.explain import validate
from specs.stages.recipes import script_file
from specs.stages.registry import kind_of
from specs.system.confinement import bubblewrap, task_file, verifier_process
from specs.system.digests import digest_bytes
from specs.system.errors import Problem, SpecError, UserError
from specs.system.regular_files import read_regular
from specs.system.yaml.problems import LintProblem, Loc, format_loc, printable, suggest
from specs.system.yaml.yaml_positions import Document, read_document
from specs.trainers import trainer_file

_RESTORE = "restore the registered file; or if the change is meant, `peergate spec pin` writes the new digest"
Unconfined = Literal["never", "trusted", "named"]
"""Whether a spec's ``sandbox: false`` is honoured: never, as anyone who reads does; where this user started or signed
such a spec with the same task; or because this user starts the spec now."""
READING_BYTES = 64_000
"""The limit of a reading list, which every reviewer reads with every packet."""
_FITTING = "the task's file says in its Item which fields items have"


class NamedFiles:
    """The constitution and data files of one spec."""

    def __init__(self, path: Path, allow_missing: bool, unconfined: Unconfined = "never") -> None:
        self.folder = path.parent
        self.allow_missing = allow_missing
        self.unconfined = unconfined
        self.problems: list[LintProblem] = []
        self.others: list[Problem] = []
        self.items: dict[str, bytes] = {}
        self.turns: set[str] = set()
        """Data files without problems, by the name that inputs have for them."""

    def read_all(self, spec: SessionSpec) -> tuple[SessionSpec, str | None, dict[str, str]]:
        """Return the spec, which then says what each data file holds, and the digests of constitution and data."""
        constitution = None if spec.constitution is None else self._constitution(spec, spec.constitution)
        digests: dict[str, str] = {}
        data: dict[str, DataFile] = {}
        heldout = self._data(("heldout",), spec.heldout, spec.analysis.n)
        for name, named in spec.data.items():
            data[name] = named
            if (value_index := self._data(("data", name), named, None)) is None:
                if self.allow_missing and named.digest:
                    digests[name] = named.digest
                continue
            digests[name] = digest_bytes(value_index.data)
            pinned = {"digest": digests[name]} if named.digest else {}
            data[name] = named.model_copy(
                update={"row_kind": None if value_index.row_kind == "items" else value_index.row_kind} | pinned
            )
            if heldout and value_index.data == heldout.data and named.path != spec.heldout.path:
                message = f"'{named.path}' is a copy of the held-out split: their digests are equal"
                self.problems.append(LintProblem(("data", name, "path"), message, "no stage may train on it"))
        split = spec.heldout
        if heldout is not None:
            digests["heldout"] = digest_bytes(heldout.data)
            # What is registered is the digest of the rows that jobs read; of a file in their form it is the file's.
            split = split.model_copy(update={"digest": digests["heldout"]})
        elif self.allow_missing:
            digests["heldout"] = split.digest
        return spec.model_copy(update={"data": data, "heldout": split}), constitution, digests

    def companions(self, spec: SessionSpec) -> SessionSpec:
        """Return the spec with the digest of each companion that is a file; problems are collected."""
        companions: dict[str, Companion] = {}
        for name, companion in spec.companions.items():
            loc: Loc = ("companions", name)
            companions[name] = companion
            if companion.path is None or (self.allow_missing and not (self.folder / companion.path).exists()):
                continue
            if (raw := self._read((*loc, "path"), companion.path)) is None:
                continue
            companions[name] = companion.model_copy(update={"digest": digest_bytes(raw)})
            if companion.digest not in (None, companions[name].digest):
                digest = companions[name].digest
                message = f"'{companion.path}' has the digest {digest}, the spec registers {companion.digest}"
                self.problems.append(LintProblem((*loc, "digest"), message, _RESTORE))
        return spec.model_copy(update={"companions": companions})

    def task(self, spec: SessionSpec) -> tuple[SessionSpec, str | None]:
        """Return the spec with its task file pinned by its digest, and the file's text; problems are collected.

        Raises PluginFault without a sandbox in which the file can run.
        """
        path, _, stated = spec.task.partition("@")
        raw = self._read(("task",), path) if task_file.is_file(path) else None
        if raw is None:
            self.permit(spec)
            return spec, None
        try:
            text = task_file.text_of(self.folder / path, raw)
            name = task_file.pin_task(path, text)
            task_file.remember(name, text, spec.verifier.limits())
            task_file.allow(name)
            self.permit(spec.model_copy(update={"task": name}))
            verifier_process.describe_task(name)
        except (SpecError, task_file.TaskFault) as error:
            self.others += error.problems if isinstance(error, SpecError) else [error.problem(self.folder)]
            return spec.model_copy(update={"task": path}), None
        host = bubblewrap.this_host()
        if host is not None and bubblewrap.find_uncovered(host, [self.folder / spec.heldout.path]):
            message = "the held-out items lie in a folder that the verifier's sandbox shows"
            hint = "keep them outside of /usr and of the Python environment"
            self.problems.append(LintProblem(("heldout", "path"), message, hint))
        if stated and name != spec.task:
            message = f"'{path}' has the digest {name.partition('@')[2]}, the spec registers {stated}"
            self.problems.append(LintProblem(("task",), message, _RESTORE))
        return spec.model_copy(update={"task": name}), text

    def permit(self, spec: SessionSpec) -> None:
        """Let this process run the spec's tasks without a sandbox where the spec and :data:`Unconfined` allow that."""
        for task in spec.tasks():
            if self.unconfined == "trusted":
                task_file.recall(task)
            elif self.unconfined == "named":
                task_file.allow(task, sandbox=spec.verifier.sandbox)

    def scripts(self, spec: SessionSpec) -> tuple[SessionSpec, dict[str, str]]:
        """Return the spec with each stage's script pinned by its digest, and the texts; problems are collected."""
        texts: dict[str, str] = {}
        stages = list(spec.stages)
        for index, stage in enumerate(spec.stages):
            loc: Loc = ("stages", index, "script")
            path = script_file.path_of(stage.script or "")
            kind = kind_of(stage)
            raw = self._read(loc, path) if path and (kind.runs_code or kind.takes_script) else None
            if raw is None:
                continue
            needed: tuple[str, ...] = ()
            try:
                text = task_file.text_of(self.folder / path, raw)
                if kind.runs_code and trainer_file.is_trainer_file(path):
                    arguments = training_inputs(spec, index)
                    if isinstance(arguments, LintProblem):
                        self.problems.append(arguments)
                        continue
                    text, needed = trainer_file.as_script(self.folder / path, raw, arguments)
                elif kind.environment == "lm_eval" and lm_eval_file.is_task_file(path):
                    limits = stage.parameters.task, stage.parameters.max_new_tokens
                    text = lm_eval_file.as_script(self.folder / path, raw, *limits)
                script_file.require_script(text, path)
            except SpecError as error:
                self.others += error.problems
                continue
            except UserError as error:
                self.problems.append(LintProblem(loc, f"'{path}': {error.message}", error.hint))
                continue
            name = script_file.pin_script(path, text)
            if stage.script != path and name != stage.script:
                message = f"'{path}' has the digest {script_file.digest_of(name)}, the spec registers another"
                self.problems.append(LintProblem(loc, message, _RESTORE))
            digest = script_file.digest_of(name)
            texts[digest] = text
            pinned: dict[str, object] = {"code": digest}
            if needed:
                pinned["requires"] = script_file.with_needed(stage.parameters.requires, needed)
            parameters = stage.parameters.model_copy(update=pinned)
            stages[index] = stage.model_copy(update={"script": name, "parameters": parameters})
        return spec.model_copy(update={"stages": tuple(stages)}), texts

    def reading(self, spec: SessionSpec) -> tuple[SessionSpec, dict[str, str]]:
        """Return the spec with each file of the reading list pinned by its digest, and the texts."""
        texts: dict[str, str] = {}
        pinned: list[str] = []
        for index, named in enumerate(spec.reading):
            loc: Loc = ("reading", index)
            path = script_file.path_of(named)
            if path in map(script_file.path_of, pinned):
                self.problems.append(LintProblem(loc, f"'{path}' is named twice", "remove the line"))
            if (raw := self._read(loc, path)) is None:
                continue
            try:
                text = task_file.text_of(self.folder / path, raw)
            except SpecError as error:
                self.others += error.problems
                continue
            pinned.append(script_file.pin_script(path, text))
            if named not in (path, pinned[-1]):
                now = script_file.digest_of(pinned[-1])
                message = f"'{path}' has the digest {now}, the spec registers another"
                hint = "restore the registered file; or if the change is meant, write the new digest"
                self.problems.append(LintProblem(loc, message, hint))
            texts[script_file.digest_of(pinned[-1])] = text
        size = sum(len(text.encode()) for text in texts.values())
        if size > READING_BYTES:
            message = f"the files have {size} bytes, reviewers read at most {READING_BYTES} before each packet"
            self.problems.append(LintProblem(("reading",), message, "shorten them, or name fewer"))
        return spec.model_copy(update={"reading": tuple(pinned)}), texts

    def require_fitting(self, spec: SessionSpec) -> None:
        """Collect a problem for each field of an item that is not as the user's own task says its items are."""
        if spec.task in TASKS or not verifier_process.describe_task(spec.task).own_items:
            return
        for name in sorted(verified_by(spec, spec.task) & self.items.keys()):
            named = spec.heldout if name == "heldout" else spec.data[name.removeprefix("data.")]
            lines = self.items[name].removesuffix(b"\n").split(b"\n")
            requests = [{"do": "misfits", "item": json.loads(line)} for line in lines]
            problems: list[Problem] = []
            for number, statements in enumerate(verifier_process.ask(spec.task, requests), 1):
                for value in statements.get("misfits", ()):
                    keys, message = map(printable, map(str, value))
                    problems.append(Problem(str(self.folder / named.path), number, 1, keys, message, _FITTING))
            self.others += at_most(problems)

    def require_answers(self, spec: SessionSpec) -> None:
        """Collect a problem for each file whose items name no answer to compare with: one for all of its lines."""
        for lacking in without_answers(spec, self.items):
            message = f"task {ANSWERED} compares with the answer that an item names; {lacking.lacking} of "
            message += f"{lacking.items} name none"
            named = spec.heldout if lacking.name == "heldout" else spec.data[lacking.name.partition(".")[2]]
            hint = 'write "constraint": {"answer": "Paris"} in each item, or take another task'
            self.others.append(
                Problem(str(self.folder / named.path), lacking.line, 1, "constraint.answer", message, hint)
            )

    def require_fields(self, spec: SessionSpec, scripts: dict[str, str]) -> None:
        """Collect a problem for each field of an item that a task of lm-eval reads and that items have not."""
        for index, stage in enumerate(spec.stages):
            path, items = script_file.path_of(stage.script or ""), self.items.get(stage.inputs.get("items", ""))
            if kind_of(stage).environment != "lm_eval" or not lm_eval_file.is_task_file(path) or items is None:
                continue
            settings = lm_eval_file.settings_of(
                lm_eval_file.files_of(scripts[script_file.digest_of(stage.script or "")])
            )
            documents = [lm_eval_file.document_of(json.loads(line)) for line in items.split(b"\n") if line.strip()]
            for problem in lm_eval_file.lacking_fields(settings, documents):
                message = f"'{path}': {format_loc(problem.loc)} {problem.message}"
                self.problems.append(LintProblem(("stages", index, "script"), message, problem.hint))

    def _constitution(self, spec: SessionSpec, named: str) -> str:
        raw = self._read(("constitution",), named)
        if raw is None:
            return ""
        try:
            known = [principle.id for principle in parse_constitution(self.folder / named, raw).principles]
        except SpecError as error:
            self.others += error.problems
            return digest_bytes(raw)
        for index, stage in enumerate(spec.stages):
            for place, name in enumerate(getattr(stage.parameters, "principles", None) or ()):
                if name not in known:
                    loc: Loc = ("stages", index, "parameters", "principles", place)
                    message = f"'{named}' holds no principle '{name}'"
                    self.problems.append(LintProblem(loc, message, suggest(name, known, "principles")))
        return digest_bytes(raw)

    def _data(self, loc: Loc, named: DataFile | HeldOut, n: int | None) -> RegisteredData | None:
        """Check one data file and return it as it is registered; problems are collected."""
        current, learned = (named.row_kind, named.learned) if isinstance(named, DataFile) else ("items", "last")
        path = self.folder / named.path
        if self.allow_missing and not path.exists():
            return None
        if not self._is_there((*loc, "path"), named.path, folder=True):
            return None
        try:
            digest, result = digest_of(path), read_registered(path, current, learned, select_columns(named))
        except (OSError, ValueError) as error:
            self.problems.append(LintProblem((*loc, "path"), f"'{named.path}' cannot be read: {error}"))
            return None
        if named.digest is not None and digest != named.digest:
            message = f"'{named.path}' has the digest {digest}, the spec registers {named.digest}"
            self.problems.append(LintProblem((*loc, "digest"), message, _RESTORE))
        problems = result if isinstance(result, list) else self._lines(path, result)
        self.others += at_most(problems)
        if isinstance(result, list) or problems:
            return None if isinstance(result, list) else result
        if result.turns:
            self.turns.add(".".join(map(str, loc)))
        if result.row_kind == "items":
            self.items[".".join(map(str, loc))] = result.data
        if n is not None and result.rows != n:
            message = f"n is {n}, '{named.path}' holds {result.rows} items"
            self.problems.append(LintProblem(("analysis", "n"), message, f"write n: {result.rows}"))
        return result

    def _lines(self, path: Path, value_index: RegisteredData) -> list[Problem]:
        return check_items(path, value_index.data) if value_index.row_kind == "items" else []

    def unreadable(self, loc: Loc, named: str) -> list[LintProblem]:
        """Return why a file cannot be read."""
        self._is_there(loc, named, folder=True)
        return self.problems

    def _read(self, loc: Loc, named: str) -> bytes | None:
        try:
            return read_regular(self.folder / named, MAX_DATA_BYTES) if self._is_there(loc, named) else None
        except (OSError, ValueError) as error:
            self.problems.append(LintProblem(loc, f"'{named}' cannot be read: {error}"))
        return None

    def _is_there(self, loc: Loc, named: str, *, folder: bool = False) -> bool:
        """Return whether a file that the spec names can be read; why not is a problem."""
        path = self.folder / named
        try:
            if not path.exists():
                hint = f"paths start from the spec's folder {self.folder.resolve()}"
                self.problems.append(LintProblem(loc, f"file '{named}' does not exist", hint))
            elif not (path.is_file() or (folder and path.is_dir())):
                self.problems.append(LintProblem(loc, f"'{named}' is not a file"))
            elif size_of(path) > MAX_DATA_BYTES:
                self.problems.append(LintProblem(loc, f"'{named}' is larger than {MAX_DATA_BYTES} bytes"))
            else:
                return True
        except (OSError, ValueError) as error:
            self.problems.append(LintProblem(loc, f"'{named}' cannot be read: {error}"))
        return False


def document_of(path: Path, raw: bytes) -> Document:
    """Return a YAML document; raises SpecError, also where a secret is written in it."""
    task_file.require_no_secret(path, raw.decode("utf-8", "replace"))
    return read_document(path, raw)


def parse_constitution(path: Path, raw: bytes) -> Constitution:
    """Return a constitution; raises SpecError with every problem."""
    document = document_of(path, raw)
    result = validate(document.data, Constitution)
    problems = result if isinstance(result, list) else lint_constitution(result)
    if isinstance(result, list) or problems:
        raise document.error(path, problems)
    return result
