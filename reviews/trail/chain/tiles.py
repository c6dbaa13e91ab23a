"""A trail as static files that other programs read: C2SP tlog-tiles, and one tlog-proof a verdict.

``checkpoint`` is the signed head, ``tile/entries`` holds the entries in bundles of 256, each behind its length in two
bytes, ``tile/L`` the hashes of level L in tiles of 256. The last of a level may be partial (``.p/W``).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from reviews.trail.chain import tree
from reviews.trail.chain.signed_head import Checkpoint
from specs.system.errors import UserError
from specs.system.regular_files import read_regular

WIDTH = 256
CHECKPOINT = "checkpoint"
PROOF = "c2sp.org/tlog-proof@v1"


def is_export(folder: Path) -> bool:
    """Return whether a folder looks like an export."""
    return (folder / CHECKPOINT).is_file() and (folder / "tile").is_dir()


def tile_name(level: str, number: int, width: int = WIDTH) -> str:
    """Return the path of a tile; ``level`` is a number or ``entries``."""
    digits = f"{number:03}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    parts = [digits[start : start + 3] for start in range(0, len(digits), 3)]
    name = "/".join([f"x{part}" for part in parts[:-1]] + parts[-1:])
    return f"tile/{level}/{name}" + ("" if width == WIDTH else f".p/{width}")


def tiles_of(leaves: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield ``(path, bytes)`` of every hash tile of a tree."""
    level, hashes = 0, list(leaves)
    while hashes:
        for number in range(0, len(hashes), WIDTH):
            tile = hashes[number : number + WIDTH]
            yield tile_name(str(level), number // WIDTH, len(tile)), b"".join(tile)
        full = len(hashes) // WIDTH
        hashes = [tree.root_of(hashes[WIDTH * index : WIDTH * (index + 1)]) for index in range(full)]
        level += 1


def bundles_of(envelopes: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield ``(path, bytes)`` of every entry bundle."""
    for number in range(0, len(envelopes), WIDTH):
        bundle = envelopes[number : number + WIDTH]
        data = b"".join(len(data).to_bytes(2, "big") + data for data in bundle)
        yield tile_name("entries", number // WIDTH, len(bundle)), data


def read_bundles(folder: Path, size: int) -> list[bytes]:
    """Read the entries of a log; raises UserError if a bundle is missing, or does not hold the entries it should."""
    envelopes: list[bytes] = []
    while len(envelopes) < size:
        width = min(WIDTH, size - len(envelopes))
        name = tile_name("entries", len(envelopes) // WIDTH, width)
        try:
            data = read_regular(folder / name)
        except OSError as error:
            raise UserError(f"entries cannot be read: {error.strerror or error}", where=name) from error
        envelopes.extend(_bundle(data, width, name))
    return envelopes


def _bundle(data: bytes, width: int, name: str) -> list[bytes]:
    matching_data: list[bytes] = []
    place = 0
    while place < len(data):
        end = place + 2 + int.from_bytes(data[place : place + 2], "big")
        if end > len(data) or place + 2 > len(data):
            raise UserError(f"the bundle ends inside entry {len(matching_data)}", where=name)
        matching_data.append(data[place + 2 : end])
        place = end
    if len(matching_data) != width:
        raise UserError(f"the bundle holds {len(matching_data)} entries, not {width}", where=name)
    return matching_data


class InclusionProof(NamedTuple):
    """A proof that an entry is in a signed tree."""

    seq: int
    path: tuple[bytes, ...]
    head: Checkpoint

    def __str__(self) -> str:
        hashes = "".join(f"{base64.b64encode(data).decode()}\n" for data in self.path)
        return f"{PROOF}\nindex {self.seq}\n{hashes}\n{self.head}"
