"""The judge of ``inspect`` and ``lm_eval`` stages: tasks of other libraries."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import answers_per_item, in_order, items_of
from reviews.evidence.row_lines import Subjects, by_item
from reviews.evidence.row_reader import ROW_CHARACTERS, read_rows
from specs.session.evaluation_plan import Outcome
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.rows import BenchmarkRow
from specs.system.digests import digest_path
from specs.system.errors import EvidenceMissing
from specs.system.text import plain
from training.rules.evaluation.inspect_log import NAME, Log, NotALog, read_log


class BenchmarkSample(NamedTuple):
    """One registered item as a sample of the task."""

    item: Item
    row: BenchmarkRow

    @property
    def passed(self) -> bool:
        """Return whether the registered scorer holds the answer for right."""
        return self.row.correct

    @property
    def reason(self) -> str:
        """What all scorers say."""
        return ", ".join(f"{name} {value}" for name, value in self.row.scores.items())

    @property
    def text(self) -> str:
        """The answer that was scored."""
        return self.row.output

    @property
    def truncated(self) -> bool:
        """Return whether an answer hit the token limit."""
        return self.row.truncated


def read_benchmark_samples(
    evidence: Evidence, path: Path | None, what: str = "inspect rows"
) -> tuple[BenchmarkSample, ...]:
    """Return every registered item of the stage with its row, or each of them, in the order of the items.

    Raises:
        EvidenceMissing: as :func:`read_rows` and :func:`in_order`.
    """
    rows, samples_per_item = read_rows(path, BenchmarkRow, what), answers_per_item(evidence)
    return tuple(BenchmarkSample(*pair) for pair in in_order(items_of(evidence), rows, what, samples_per_item))


def log_file(evidence: Evidence) -> Path:
    """Return the log that the stage left; raises EvidenceMissing where it is absent or not the recorded one."""
    folder = evidence.outputs.get("log")
    if folder is None or not (folder / NAME).is_file():
        raise EvidenceMissing("the log is missing", hint="the job left none that counts")
    try:
        text = digest_path(folder)
    except (OSError, ValueError) as error:
        raise EvidenceMissing(str(error), where="log") from error
    if text != evidence.output_digests.get("log"):
        raise EvidenceMissing("the log was changed after the job wrote it", where="log")
    return folder / NAME


def log_of(evidence: Evidence) -> Log:
    """Return what the log holds; raises EvidenceMissing as :func:`log_file`, or where it is not a log."""
    try:
        return read_log(log_file(evidence))
    except (NotALog, OSError) as error:
        raise EvidenceMissing(str(error), where="log") from error


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the samples for its metrics; errors as :func:`read_benchmark_samples`."""
    path = evidence.outputs.get(output)
    subjects = by_item(read_benchmark_samples(evidence, path), read_rows(path, BenchmarkRow, "inspect rows"))
    return subjects._replace(of_item=answers_per_item(evidence))


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return the share of each item's answers that the registered scorer accepts: 1 or 0 of one.

    Errors are those of :func:`read_benchmark_samples`.
    """
    samples, samples_per_item = read_benchmark_samples(evidence, path), answers_per_item(evidence)
    return [
        fmean(value.passed for value in samples[at : at + samples_per_item])
        for at in range(0, len(samples), samples_per_item)
    ]


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every sample with its scores; errors as :func:`read_benchmark_samples`."""
    return [
        {
            "item": value.item.id,
            **({"sample": value.row.sample} if answers_per_item(evidence) > 1 else {}),
            "prompt": plain(value.item.prompt, ROW_CHARACTERS),
            "output": plain(value.text, ROW_CHARACTERS),
            "target": plain(", ".join(value.row.target), ROW_CHARACTERS),
            "calls": len(value.row.calls),
            "truncated": value.truncated,
            "passed": value.passed,
            "reason": plain(value.reason, ROW_CHARACTERS),
        }
        for value in read_benchmark_samples(evidence, evidence.outputs.get("rows"))
    ]
