"""A task's module as the process of its verifier runs it; nothing else may import this.

``verify`` returns True, False or a :class:`Judgement`; ValueError and TypeError mean no. Any other exception, and any
on a known right answer, is a fault: a typo must not become a null result.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint
from typing import Any

from pydantic import BaseModel, ValidationError

from specs.stages.base.artifacts import Item
from specs.system import plugins
from specs.system.confinement import task_file
from specs.system.errors import PluginFault
from specs.system.text import plain
from training.rules.tasks.format_instructions import Judgement

GROUP: plugins.Group = "peergate.tasks"
KNOWN = "known"
"""Id, group and kind of an item of a known answer that has none."""


class TaskModule:
    """The module of a task of another distribution, or of a file next to the spec."""

    def __init__(self, module: Any, where: str) -> None:
        self._module = module
        self._where = where
        for name, form in task_file.PARTS.items():
            if (wrong := task_file.wrong_form(module, name, form)) and (name == "verify" or hasattr(module, name)):
                raise PluginFault(wrong, where=where)
        own = getattr(module, "Item", None)
        self._form: type[BaseModel] | None = None
        if isinstance(own, type) and issubclass(own, BaseModel) and own is not Item:
            self._form = own

    @property
    def parts(self) -> list[str]:
        """The names of the functions that it has."""
        return [name for name in task_file.PARTS if hasattr(self._module, name)]

    @property
    def own_items(self) -> bool:
        """Return whether it says which fields its items have."""
        return self._form is not None

    def misfits(self, item: Item) -> list[tuple[str, str]]:
        """Return what is wrong with the fields of an item, as (field, message)."""
        try:
            self._own(item)
        except ValidationError as error:
            return [
                (".".join(map(str, error_details["loc"])), plain(error_details["msg"], 200))
                for error_details in error.errors()
            ]
        return []

    def verify(self, item: Item, output: str) -> Judgement:
        """Return whether an answer is right.

        Raises PluginFault if the verifier breaks, or answers neither yes nor no.
        """
        arguments = self._convert_item(item)
        try:
            return self._verify_answer(arguments, output)
        except (ValueError, TypeError) as error:
            return Judgement(False, plain(str(error), 200))
        except PluginFault:
            raise
        except BaseException as error:
            raise self._broken(error, f"breaks on item '{item.id}'") from error

    def verify_right(self, item: Item, output: str) -> Judgement:
        """Judge a known right answer; raises PluginFault if the verifier raises anything at all."""
        arguments = self._convert_item(item)
        try:
            return self._verify_answer(arguments, output)
        except PluginFault:
            raise
        except BaseException as error:
            raise self._broken(error, f"breaks on the known right answer '{plain(output, 60)}'") from error

    def worked_example(self, item: Item) -> tuple[str, str]:
        """Return (prompt, answer) to show before an item while sampling; raises PluginFault if the function breaks."""
        try:
            prompt, answer = self._module.worked_example(self._convert_item(item))
        except Exception as error:
            message = f"its worked_example breaks on item '{item.id}': {type(error).__name__}: {plain(str(error), 200)}"
            raise PluginFault(message, where=self._place("worked_example", error)) from error
        return str(prompt), str(answer)

    def known_answers(self) -> list[tuple[Item, str, bool]]:
        """Return answers with known labels; raises PluginFault if the function breaks."""
        try:
            results: Iterable[Any] = list(self._module.known_answers())
        except Exception as error:
            message = f"its known_answers breaks: {type(error).__name__}: {plain(str(error), 200)}"
            raise PluginFault(message, where=self._place("known_answers", error)) from error
        known: list[tuple[Item, str, bool]] = []
        for value in results:
            match value:
                case (Item() as item, str(text), bool(right)):
                    known.append((item, text, right))
                case (BaseModel() as own, str(text), bool(right)) if self._form and isinstance(own, self._form):
                    known.append((self._as_item(own), text, right))
                case _:
                    message = (
                        f"its known_answers holds {plain(repr(value), 100)}, which is not (Item, text, True or False)"
                    )
                    raise PluginFault(message, where=self._place("known_answers"))
        return known

    def _convert_item(self, item: Item) -> Any:
        """Return an item as the task's functions get it."""
        try:
            return self._own(item)
        except ValidationError as error:
            message = (
                f"item '{item.id}' has not the fields that its Item asks for: {plain(str(error.errors()[0]), 200)}"
            )
            raise PluginFault(message, where=self._where) from error

    def _own(self, item: Item) -> Any:
        """Return an item in the task's own form, which may ask for the row's fields too; raises ValidationError."""
        if self._form is None:
            return item
        row = {name: getattr(item, name) for name in _ROW if name in self._form.model_fields}
        return self._form.model_validate(row | item.constraint)

    def _as_item(self, own: BaseModel) -> Item:
        """Return an item of the task's own form as a row; raises PluginFault if its fields are not texts or numbers."""
        values = own.model_dump(mode="json")
        row = {name: values.pop(name) for name in _ROW if name in values}
        try:
            return Item.model_validate(dict.fromkeys(_ROW, KNOWN) | row | {"constraint": values})
        except ValidationError as error:
            message = f"its known_answers holds an Item that is not a row: {plain(str(error.errors()[0]), 200)}"
            raise PluginFault(message, where=self._place("known_answers")) from error

    def _broken(self, error: BaseException, text: str) -> PluginFault:
        text = f"its verifier {text}: {type(error).__name__}: {plain(str(error), 200)}{task_file.reach_in_words(error)}"
        return PluginFault(text, where=self._place("verify", error))

    def _verify_answer(self, arguments: Any, output: str) -> Judgement:
        statement: Any = self._module.verify(arguments, output)
        if isinstance(statement, Judgement):
            return statement
        if not isinstance(statement, bool):
            kind = type(statement)
            name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
            message = f"its verifier returns a {name}, not True or False"
            raise PluginFault(message, where=self._place("verify"))
        return Judgement(statement)

    def _place(self, name: str, error: BaseException | None = None) -> str:
        """Return who brings the task, with the line at which its code raised an error, or defines a function."""
        code = getattr(inspect.unwrap(getattr(self._module, name)), "__code__", None)
        if code is None:
            return self._where
        own = f"{code.co_filename}:{code.co_firstlineno}"
        place = plugins.line_of(error, code.co_filename.__eq__) or own
        return place if code.co_filename == self._where else f"{self._where}, {place}"


_ROW = ("id", "group", "kind", "prompt")


def task_module(name: str, point: Sequence[str] | None) -> TaskModule:
    """Return the module of a task, which can be used.

    Args:
        name: of the task: that of a file whose text this process knows, or of an entry point.
        point: what the entry point names, and who brings it.

    Raises:
        PluginFault: it cannot be imported, or is not a task.
    """
    if task_file.is_file(name):
        return TaskModule(task_file.module_of(name), task_file.path_of(name))
    if point is None:
        raise PluginFault("no installed distribution provides this task", where=name)
    value, where = point
    return TaskModule(plugins.run_bounded(EntryPoint(name, value, GROUP).load, where), where)
