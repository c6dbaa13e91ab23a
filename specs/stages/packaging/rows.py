"""Raw rows of the kind that packages a checkpoint."""

from __future__ import annotations

from specs.digests import Contract, Count


class PackageRow(Contract):
    """One probe: the token ids from the checkpoint and from the package in a fresh process."""

    unique_by = ("item",)

    item: str
    expected: tuple[Count, ...]
    reloaded: tuple[Count, ...]
