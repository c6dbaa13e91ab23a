"""What a task is: ``verify(item, answer)``, and what else its module may have, each found by its name.

``worked_example(item) -> (prompt, answer)`` is shown while sampling; ``known_answers() -> [(item, answer, right)]``
admit the verifier. ``verify`` returns True, False or a :class:`Judgement`; ValueError and TypeError mean no. Anything
else that it raises, and anything at all that it raises on a known answer, is an error and closes the gate: a typo must
not become a null result.
"""

from __future__ import annotations

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
        if not callable(getattr(module, "verify", None)):
            raise PluginFault("has no function verify(item, answer)", where=where)

    def verify(self, item: Item, output: str) -> Judgement:
        """Say whether an answer is right.

        Raises:
            PluginFault: the verifier breaks, or answers neither yes nor no.
        """
        try:
            return self.judged(item, output)
        except (ValueError, TypeError) as error:
            return Judgement(False, plain(str(error), 200))
        except PluginFault:
            raise
        except Exception as error:
            told = f"breaks on item '{item.id}': {type(error).__name__}: {plain(str(error), 200)}"
            raise PluginFault(f"its verifier {told}", where=self._where) from error

    def judged(self, item: Item, output: str) -> Judgement:
        """Say whether an answer is right, and let every error of the verifier through.

        Raises:
            PluginFault: it answers neither yes nor no.
            Exception: whatever the verifier raises.
        """
        said: Any = self._module.verify(item, output)
        if isinstance(said, Judgement):
            return said
        if not isinstance(said, bool):
            raise PluginFault(f"its verifier returns a {type(said).__name__}, not True or False", where=self._where)
        return Judgement(said)

    def worked_example(self, item: Item) -> tuple[str, str]:
        """Return (prompt, answer) to show before an item while sampling.

        Raises:
            KeyError: the task has none.
        """
        if not hasattr(self._module, "worked_example"):
            raise KeyError(f"the task has no worked example for '{item.id}'")
        prompt, answer = self._module.worked_example(item)
        return str(prompt), str(answer)

    def known_answers(self) -> Iterable[tuple[Item, str, bool]]:
        """Return answers of which it is known whether they are right.

        Raises:
            KeyError: the task has none.
            PluginFault: what should give them breaks.
        """
        if not hasattr(self._module, "known_answers"):
            raise KeyError("the task has no known answers")
        try:
            return list(self._module.known_answers())
        except LookupError as error:
            # Not a task without known answers, which a KeyError would say.
            told = f"its known_answers breaks: {type(error).__name__}: {plain(str(error), 200)}"
            raise PluginFault(told, where=self._where) from error


@cache
def plugin_task(name: str) -> PluginTask | None:
    """Return the task of a file beside the spec, or of a name that another distribution brings; None where none does.

    Raises:
        KeyError: it is a file that no spec or order of this process named.
        PluginFault: it cannot be loaded, or is no task.
    """
    if task_file.is_file(name):
        return PluginTask(task_file.module_of(name), task_file.path_of(name))
    point = plugins.find(GROUP, name)
    return None if point is None else PluginTask(plugins.load(point), plugins.where(point))
