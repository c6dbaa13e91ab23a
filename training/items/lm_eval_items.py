"""Write documents of a task of lm-eval as items, for a ``multiple_choice`` stage with ``lm_eval_task``.

``python -m training.items.lm_eval_items --task arc_easy --docs FILE --out FILE``. FILE is your JSONL file of documents
in the form of the task's data (for ``arc_easy``: ``question``, ``choices`` with ``label`` and ``text``, ``answerKey``);
nothing is fetched. An item holds question and choices as the task's templates write them, and the document. Only tasks
of type multiple_choice whose choices follow one text are supported.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specs.stages.base.artifacts import Item
from specs.system.regular_files import read_regular
from training.jobs.evaluation.lm_eval_task import NAME, of_the_library, place_of, require_lm_eval, write_task
from training.rules.tasks import write_items
from training.rules.tasks.choices import DOCUMENT, answer_of


def items_of(task: str, documents: Sequence[dict[str, Any]], folder: Path) -> list[Item]:
    """Return the documents as items of one of the library's tasks, whose files are written to ``folder``.

    Raises ValueError if it is not a task of multiple choice, or a document's choices follow several texts.
    """
    from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    write_task(folder, documents, of_the_library(task))
    manager: Any = TaskManager(include_path=str(folder), include_defaults=False)
    built: Any = manager.load([NAME])["tasks"][NAME]
    built.build_all_requests()
    requests: dict[int, list[Any]] = {}
    for instance in built.instances:
        requests.setdefault(instance.doc_id, []).append(instance)
    return [_item(task, number, requests[number], built) for number in sorted(requests)]


def _item(task: str, number: int, requests: list[Any], built: Any) -> Item:
    texts = {value.arguments[0] for value in requests}
    if len(texts) != 1:
        raise ValueError(f"document {number}: '{task}' puts the choices before the end of the question")
    choices = [str(value.arguments[1]).strip() for value in requests]
    document = requests[0].doc
    target = built.doc_to_target(document)
    right = place_of(target, choices)
    if right is None:
        raise ValueError(f"document {number}: '{task}' names {target!r} as right, which is not among {choices}")
    constraint: dict[str, str | int] = {f"choice_{place}": choice for place, choice in enumerate(choices, 1)}
    constraint |= {"answer": right + 1, DOCUMENT: json.dumps(document, ensure_ascii=False)}
    key = f"{task}-{number}"
    item = Item(id=key, group=key, kind=task, prompt=texts.pop(), constraint=constraint)
    answer_of(item)
    return item


def main() -> int:
    """Write the file that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m training.items.lm_eval_items", description=__doc__)
    parser.add_argument("--task", required=True, help="one of lm-eval's own tasks, of multiple choice")
    parser.add_argument("--docs", type=Path, required=True, help="JSONL, one document of the task a line")
    parser.add_argument("--out", type=Path, required=True)
    namespace = parser.parse_args()
    require_lm_eval()
    try:
        documents = [
            json.loads(line) for line in read_regular(namespace.docs).decode("utf-8").splitlines() if line.strip()
        ]
        with tempfile.TemporaryDirectory() as folder:
            items = items_of(namespace.task, documents, Path(folder))
    except (OSError, ValueError) as error:
        print(f"{error}", file=sys.stderr)
        return 2
    write_items(namespace.out, items)
    print(f"{namespace.out}: {len(items)} items")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
