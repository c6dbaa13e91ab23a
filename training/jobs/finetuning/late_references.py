"""Log-probabilities of the reference for the pairs of some steps: TRL computes those of all before it trains."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from specs.jobs.job_records import Segment


class LateReferences:
    """Rows of a trainer whose references are computed when it is known which steps are taken.

    They are computed in the batches in which TRL would have: another padding changes the last digits.
    """

    def __init__(self, rows: Any, compute: Callable[[Any], Any], size: int) -> None:
        self._rows, self._compute, self._size = rows, compute, size
        first = compute(rows.select(range(min(size, len(rows)))))
        self._columns = [name for name in first.column_names if name not in rows.column_names]

    def number_rows(self) -> Any:
        """Return the rows with their places where the references belong: a batch then shows which rows it has."""
        return self._with({name: [float(place) for place in range(len(self._rows))] for name in self._columns})

    def of_steps(self, trainer: Any, part: Segment) -> Any:
        """Return the rows with references, which are NaN for rows that the steps do not read."""
        import torch

        every = range(len(self._rows))
        # What a loader draws from the generator of the training would be missing there.
        with torch.random.fork_rng(devices=[]):
            batches = sorted({place // self._size for place in self._read(trainer, part)})
            wanted = [place for batch in batches for place in every[batch * self._size : (batch + 1) * self._size]]
            result = self._compute(self._rows.select(wanted))
        columns = {name: [math.nan] * len(self._rows) for name in self._columns}
        for name, column in columns.items():
            for place, value in zip(wanted, result[name], strict=True):
                column[place] = float(value)
        return self._with(columns)

    def _read(self, trainer: Any, part: Segment) -> set[int]:
        """Return the places of the rows that the batches of some steps hold."""
        counts: set[int] = set()
        trainer.train_dataset = self.number_rows()
        loader, batches_per_step = trainer.get_train_dataloader(), trainer.args.gradient_accumulation_steps
        an_epoch = math.ceil(len(loader) / batches_per_step)
        for epoch in range(part.after // an_epoch, math.ceil(part.until / an_epoch)):
            loader.set_epoch(epoch)
            for number, batch in enumerate(loader):
                if part.after <= epoch * an_epoch + number // batches_per_step < part.until:
                    counts |= {int(value) for value in batch[self._columns[0]].tolist()}
        return counts

    def _with(self, columns: dict[str, list[float]]) -> Any:
        from datasets import Dataset, concatenate_datasets

        return concatenate_datasets([self._rows, Dataset.from_dict(columns)], axis=1)


def with_late_references(trainer: type[Any]) -> type[Any]:
    """Return a subclass of one of TRL's trainers that leaves references to its :class:`LateReferences`."""

    class Late(trainer):
        """Its ``references`` computes those of some steps."""

        references: LateReferences

        def _precompute_ref_logps(self, dataset: Any, name: str, batch_size: int) -> Any:
            compute = partial(super()._precompute_ref_logps, name=name, batch_size=batch_size)
            self.references = LateReferences(dataset, compute, batch_size)
            return self.references.number_rows()

    return Late
