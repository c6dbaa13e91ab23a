"""The variables of the processes of a job: named ones only, wherever it runs."""

from __future__ import annotations

import os
from pathlib import Path

from specs.system.reporting import REPORTING_OFF
from specs.system.resources import Resources

JOB_VARIABLES = REPORTING_OFF | {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONHASHSEED": "0",
    # Waiting threads sleep. By default they spin, and two jobs on the same cores slow each other down many times.
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""For every job, in a sandbox or not."""
_PASSED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
    # Where other libraries are.
    *("PEERGATE_INSPECT_PYTHON", "PEERGATE_SCRIPT_PACKAGES"),
)
_CACHES = (
    *("PEERGATE_CACHE", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
    *("HF_ASSETS_CACHE", "HF_DATASETS_CACHE", "HF_MODULES_CACHE", "TORCH_HOME"),
)
"""Folders, which may be relative: a job runs in another folder."""
_SET = JOB_VARIABLES | {"PYTHONUNBUFFERED": "1"}


def job_environment(resources: Resources | None = None) -> dict[str, str]:
    """Return the whole environment of a job: named variables only, so that no key or token gets in."""
    remaining = {name: os.environ[name] for name in _PASSED if name in os.environ} | _SET
    for name in _CACHES:
        if value := os.environ.get(name):
            # What the library itself expands stays as it is.
            remaining[name] = value if value.startswith(("~", "$")) else str(Path(value).absolute())
    return remaining | ({"OMP_NUM_THREADS": str(resources.cpus)} if resources and resources.cpus else {})
