"""What a task is: ``verify(item, answer)``, and optional parts of its module.

``worked_example(item) -> (prompt, answer)`` is shown while sampling; ``known_answers() -> [(item, answer, right)]``
admit the verifier; ``Item``, a pydantic model, has the fields that its items have. Peergate asks a task that is not its
own in a separate process (``specs/system/confinement/verifier_process.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Literal

from pydantic import ValidationError

from specs.stages.base.artifacts import Item
from specs.system import plugins
from specs.system.confinement import task_file, verifier_process
from specs.system.errors import PluginFault
from specs.system.text import plain
from training.rules.tasks.format_instructions import Judgement

Verifier = Callable[[Item, str], Judgement]
Asked = tuple[Item, str]
GROUP = verifier_process.GROUP


class PluginTask:
    """A task of another distribution, or of a file next to the spec."""

    def __init__(self, name: str, where: str) -> None:
        self._name = name
        self._where = where

    def verify(self, item: Item, output: str) -> Judgement:
        """Return whether an answer is right.

        Raises PluginFault if the verifier breaks, or answers neither yes nor no.
        """
        return self.verify_all([(item, output)])[0]

    def verify_right(self, item: Item, output: str) -> Judgement:
        """Judge a known right answer; raises PluginFault if the verifier raises anything at all."""
        return self._judge("verify_right", [(item, output)], again=False)[0]

    def verify_all(self, requests: Sequence[Asked], *, again: bool = False) -> list[Judgement]:
        """Judge answers, in their order; ``again`` asks another process. Raises PluginFault as :meth:`verify`."""
        return self._judge("verify", requests, again)

    def worked_example(self, item: Item) -> tuple[str, str]:
        """Return (prompt, answer) to show before an item while sampling; raises KeyError if the task has none."""
        if "worked_example" not in verifier_process.describe_task(self._name).parts:
            raise KeyError(f"the task has no worked example for '{item.id}'")
        (statements,) = verifier_process.ask(self._name, [{"do": "worked_example", "item": item.model_dump()}])
        match statements:
            case {"example": [str(prompt), str(answer)]}:
                return prompt, answer
            case _:
                raise self._formless("worked_example")

    def known_answers(self) -> Iterable[tuple[Item, str, bool]]:
        """Return answers with known labels; raises KeyError if there are none, PluginFault if the function breaks."""
        if "known_answers" not in verifier_process.describe_task(self._name).parts:
            raise KeyError("the task has no known answers")
        (statements,) = verifier_process.ask(self._name, [{"do": "known_answers"}])
        results: list[tuple[Item, str, bool]] = []
        for value in statements.get("known", [None]):
            match value:
                case [dict(item), str(text), bool(right)]:
                    results.append((self._item(item), text, right))
                case _:
                    raise self._formless("known_answers")
        return results

    def _judge(self, what: Literal["verify", "verify_right"], request: Sequence[Asked], again: bool) -> list[Judgement]:
        requests = [{"do": what, "item": item.model_dump(), "answer": text} for item, text in request]
        judgements: list[Judgement] = []
        for (_, text), statements in zip(request, verifier_process.ask(self._name, requests, again=again), strict=True):
            match statements:
                case {"passed": bool(passed), "reason": str(reason), "span": None}:
                    judgements.append(Judgement(passed, plain(reason, 200)))
                case {"passed": bool(passed), "reason": str(reason), "span": [int(begin), int(end)]} if (
                    0 <= begin < end <= len(text)
                ):
                    judgements.append(Judgement(passed, plain(reason, 200), (begin, end)))
                case _:
                    raise self._formless("verifier")
        return judgements

    def _item(self, values: dict[str, Any]) -> Item:
        try:
            return Item.model_validate(values)
        except ValidationError as error:
            raise self._formless("known_answers") from error

    def _formless(self, part: str) -> PluginFault:
        return PluginFault(f"its {part} answers in no known form", where=self._where)


@cache
def plugin_task(name: str) -> PluginTask | None:
    """Return the task of a file next to the spec, or of another distribution; None if there is none.

    Raises KeyError for a file that no spec or order of this process named, PluginFault for what is not a task.
    """
    if task_file.is_file(name):
        verifier_process.describe_task(name)
        return PluginTask(name, task_file.path_of(name))
    point = plugins.find(GROUP, name)
    if point is None:
        return None
    verifier_process.describe_task(name)
    return PluginTask(name, plugins.where(point))
