"""Where things lie on the pod, and the variables that keep every cache under the durable root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_PASSED = (
    *("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SSL_CERT_FILE"),
    "HF_ENDPOINT",
)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Layout:
    """The folders of one session under the root of a pod."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        # HOME of everything that is started here. Jobs inherit no other variable, so caches have to lie below it.
        self.home = root / "home"
        # The signing keys of this pod lie next to the run folders and never leave it.
        self.runs = root / "runs"
        self.run = self.runs / name
        # The files that were sent to start from.
        self.specs = root / "specs" / name
        # The keeper's files, among them the output of the orchestrator.
        self.own = root / "pods" / name
        self.log = self.own / "orchestrator.log"

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
            # The defaults below HOME.
            "HF_HOME": str(cache / "huggingface"),
            "TORCH_HOME": str(cache / "torch"),
            "PEERGATE_CACHE": str(cache / "peergate"),
        }

    def environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the whole environment of the orchestrator except its keys."""
        names = (*_PASSED, *_PROXIES, *(proxy.lower() for proxy in _PROXIES))
        return {name: environ[name] for name in names if name in environ} | self.variables()

    def make(self) -> None:
        """Make every folder, readable by its user alone; raise OSError if the root cannot be written."""
        os.umask(0o077)
        for folder in (*map(Path, self.variables().values()), self.runs, self.specs, self.own):
            folder.mkdir(parents=True, exist_ok=True)
