"""What a task is: ``verify(item, answer)``, and optional functions of its module.

``worked_example(item) -> (prompt, answer)`` is shown while sampling; ``known_answers() -> [(item, answer, right)]``
admit the verifier. ``verify`` returns True, False or a :class:`Judgement`; ValueError and TypeError mean no. Any other
exception, and any on a known right answer, closes the gate: a typo must not become a null result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from specs import plugins, task_file
from specs.errors import PluginFault
from specs.stages.artifacts import Item
from specs.text import plain
from training.rules.tasks.format_instructions import Judgement

Verifier = Callable[[Item, str], Judgement]
GROUP: plugins.Group = "peergate.tasks"


class PluginTask:
    """A task of another distribution, or of a file beside the spec."""

    def __init__(self, module: Any, where: str) -> None:
        self._module = module
        self._where = where
        for name, form in task_file.PARTS.items():
            if (wrong := task_file.wrong_form(module, name, form)) and (name == "verify" or hasattr(module, name)):
                raise PluginFault(wrong, where=where)

    def verify(self, item: Item, output: str) -> Judgement:
        """Say whether an answer is right; raises PluginFault if the verifier breaks, or answers neither yes nor no."""
        try:
            return self._judged(item, output)
        except (ValueError, TypeError) as error:
            return Judgement(False, plain(str(error), 200))
        except PluginFault:
            raise
        except Exception as error:
            raise self._broken(error, f"breaks on item '{item.id}'") from error

    def verify_right(self, item: Item, output: str) -> Judgement:
        """Judge a known right answer; raises PluginFault if the verifier raises anything at all."""
        try:
            return self._judged(item, output)
        except PluginFault:
            raise
        except Exception as error:
            raise self._broken(error, f"breaks on the known right answer '{plain(output, 60)}'") from error

    def _broken(self, error: Exception, told: str) -> PluginFault:
        told = f"its verifier {told}: {type(error).__name__}: {plain(str(error), 200)}"
        return PluginFault(told, where=self._place("verify", error))

    def _judged(self, item: Item, output: str) -> Judgement:
        said: Any = self._module.verify(item, output)
        if isinstance(said, Judgement):
            return said
        if not isinstance(said, bool):
            told = f"its verifier returns a {type(said).__name__}, not True or False"
            raise PluginFault(told, where=self._place("verify"))
        return Judgement(said)

    def worked_example(self, item: Item) -> tuple[str, str]:
        """Return (prompt, answer) to show before an item while sampling; raises KeyError if the task has none."""
        if not hasattr(self._module, "worked_example"):
            raise KeyError(f"the task has no worked example for '{item.id}'")
        prompt, answer = self._module.worked_example(item)
        return str(prompt), str(answer)

    def known_answers(self) -> Iterable[tuple[Item, str, bool]]:
        """Return answers with known labels; raises KeyError if there are none, PluginFault if the function breaks."""
        if not hasattr(self._module, "known_answers"):
            raise KeyError("the task has no known answers")
        try:
            found: list[Any] = list(self._module.known_answers())
        except LookupError as error:
            # Not a task without known answers, which a KeyError would say.
            told = f"its known_answers breaks: {type(error).__name__}: {plain(str(error), 200)}"
            raise PluginFault(told, where=self._place("known_answers", error)) from error
        for one in found:
            match one:
                case (Item(), str(), bool()):
                    pass
                case _:
                    told = f"its known_answers holds {plain(repr(one), 100)}, which is not (Item, text, True or False)"
                    raise PluginFault(told, where=self._place("known_answers"))
        return found

    def _place(self, name: str, error: BaseException | None = None) -> str:
        """Return who brings the task, with the line at which its code raised an error, or defines a function."""
        code = getattr(inspect.unwrap(getattr(self._module, name)), "__code__", None)
        if code is None:
            return self._where
        own = f"{code.co_filename}:{code.co_firstlineno}"
        place = plugins.line_of(error, code.co_filename.__eq__) or own
        return place if code.co_filename == self._where else f"{self._where}, {place}"


@cache
def plugin_task(name: str) -> PluginTask | None:
    """Return the task of a file beside the spec, or of another distribution; None if there is none.

    Raises KeyError for a file that no spec or order of this process named, PluginFault for what is no task.
    """
    if task_file.is_file(name):
        return PluginTask(task_file.module_of(name), task_file.path_of(name))
    point = plugins.find(GROUP, name)
    return None if point is None else PluginTask(plugins.load(point), plugins.where(point))
