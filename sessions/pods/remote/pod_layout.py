"""Where things lie on the pod, and the variables that keep every cache under the durable root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SSL_CERT_FILE")
_HUB = ("HF_ENDPOINT",)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class Layout:
    """The folders of one session under the root of a pod."""

    root: Path
    name: str

    @property
    def home(self) -> Path:
        """HOME of everything that is started here. Jobs inherit no other variable, so caches have to lie below it."""
        return self.root / "home"

    @property
    def runs(self) -> Path:
        """The folder of run folders; the signing keys of this pod lie beside them and never leave it."""
        return self.root / "runs"

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.runs / self.name

    @property
    def specs(self) -> Path:
        """What was brought here to start from."""
        return self.root / "specs" / self.name

    @property
    def own(self) -> Path:
        """What the keeper writes and reads."""
        return self.root / "pods" / self.name

    @property
    def log(self) -> Path:
        """What the orchestrator says."""
        return self.own / "orchestrator.log"

    def variables(self) -> dict[str, str]:
        """Return the variables that name folders under the root."""
        cache = self.home / ".cache"
        return {
            "HOME": str(self.home),
            "TMPDIR": str(self.root / "tmp"),
            "XDG_CACHE_HOME": str(cache),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_DATA_HOME": str(self.home / ".local" / "share"),
            "XDG_STATE_HOME": str(self.home / ".local" / "state"),
            # As they are by default below HOME: a job, which gets HOME alone, finds the same.
            "HF_HOME": str(cache / "huggingface"),
            "TORCH_HOME": str(cache / "torch"),
            "PEERGATE_CACHE": str(cache / "peergate"),
        }

    def environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the whole environment of the orchestrator but for its keys."""
        names = (*_KEPT, *_HUB, *_PROXIES, *(one.lower() for one in _PROXIES))
        return {name: environ[name] for name in names if name in environ} | self.variables()

    def make(self) -> None:
        """Make every folder; what the session writes is for its user alone.

        Raises:
            OSError: the root cannot be written.
        """
        os.umask(0o077)
        folders = [Path(value) for value in self.variables().values()]
        for folder in (*folders, self.runs, self.specs, self.own):
            folder.mkdir(parents=True, exist_ok=True)
