"""For how long the GPUs that a job sees have been idle: asked of nvidia-smi, next to the job, not of the job."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any

SAMPLE_S = 15.0
"""nvidia-smi takes some 20 ms of processor, which count as the job's."""
ANSWER_S = 10.0
IDLE_PERCENT = 5
"""Below this share of the last second, by every GPU, none of them computes."""


class GpuUse:
    """What is known of the GPUs; without nvidia-smi, and for a job on the processor, nothing is."""

    def __init__(self, parameters: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> None:
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        self._program = shutil.which("nvidia-smi", path=environ.get("PATH"))
        self._some = ["--id", visible] if visible else []
        # CUDA reads "-1" and an empty list as no GPU at all.
        hidden = visible is not None and (not visible.strip() or visible.startswith("-"))
        self._is_sampled = self._program is not None and not hidden and parameters.get("device") != "cpu"
        self._idle: tuple[float, float] | None = None
        """Since when no GPU was busy, and the newest sample."""

    @property
    def idle_s(self) -> float | None:
        """For how long no GPU has been busy, up to the newest sample; None if that is not known."""
        idle = self._idle
        return None if idle is None else round(idle[1] - idle[0], 1)

    def watch(self) -> None:
        """Sample from now on, in a thread that ends with the process: nvidia-smi may hang with the driver."""
        if self._is_sampled:
            threading.Thread(target=self._repeat, name="gpu use", daemon=True).start()

    def _repeat(self) -> None:
        while True:
            self.sample()
            time.sleep(SAMPLE_S)

    def sample(self) -> None:
        """Ask nvidia-smi once; if it does not say how busy each GPU is, nothing is known."""
        busy = self._percent()
        now = time.monotonic()
        if busy is None:
            self._idle = None
        elif busy >= IDLE_PERCENT or self._idle is None:
            self._idle = now, now
        else:
            self._idle = self._idle[0], now

    def _percent(self) -> float | None:
        """Return how busy the busiest GPU is."""
        texts = [self._program or "", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", *self._some]
        try:
            done = subprocess.run(texts, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=True)
            return max(float(line) for line in done.stdout.split(b"\n") if line.strip())
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
