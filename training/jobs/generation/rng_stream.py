"""A stream of random numbers that a stage which was ended goes on with, where its last whole group left it.

The state after each group is on the disk before the group is, so that every group that is there has one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Draws:
    """The generator of a stage's sampling, and its states.

    Args:
        folder: where the states are kept.
        seed: of the stream.
        device: the generator's; the stream of a GPU is another than that of a CPU.
        groups: how many groups are there already.

    Raises:
        OSError: the state after the last of them cannot be read.
        RuntimeError: it is none of such a device.
    """

    def __init__(self, folder: Path, seed: int, device: str, groups: int) -> None:
        import torch

        self._folder = folder
        self.generator: torch.Generator = torch.Generator(device=device).manual_seed(seed)
        if groups:
            state = bytearray(self._of(groups).read_bytes())
            self.generator.set_state(torch.frombuffer(state, dtype=torch.uint8))

    def keep(self, groups: int) -> None:
        """Keep the state after so many groups, durably; the one before it is still needed, earlier ones are not."""
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / "partial"
        with partial.open("wb") as handle:
            handle.write(self.generator.get_state().numpy().tobytes())
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(self._of(groups))
        self._of(groups - 2).unlink(missing_ok=True)

    def _of(self, groups: int) -> Path:
        return self._folder / f"after-{groups}"
