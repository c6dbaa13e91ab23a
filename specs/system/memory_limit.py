"""Bounds the memory that this process may take while it reads a file."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_lock = threading.Lock()


@contextmanager
def memory_limit(more: int) -> Generator[None]:
    """Let an allocation raise MemoryError beyond ``more`` bytes of new address space; without effect outside Linux."""
    with _lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        with suppress(OSError):
            most = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * _PAGE + more
            if soft == resource.RLIM_INFINITY or most < soft:
                resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
