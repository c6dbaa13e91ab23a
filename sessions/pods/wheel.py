"""A wheel of the Peergate that runs here, and the versions it runs with: the pod gets the same code, without an index.

Written from the installed files themselves, so it works for a checkout and for an installed distribution alike, and the
same code gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from importlib.metadata import Distribution, distribution, distributions

from specs.home import HOME, PACKAGES

_LEFT_OUT = ("__pycache__", ".ruff_cache", ".pyc", ".pyo")
_WHEEL = "Wheel-Version: 1.0\nGenerator: peergate\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_DATE = (1980, 1, 1, 0, 0, 0)


def wheel_of_this() -> tuple[str, bytes]:
    """Return the name and the bytes of the wheel."""
    own = distribution("peergate")
    files = {
        path.relative_to(HOME).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in sorted((HOME / package).rglob("*"))
        if path.is_file() and not any(one in path.name or one in path.parts for one in _LEFT_OUT)
    }
    info = f"peergate-{own.version}.dist-info"
    files |= {f"{info}/{name}": text.encode() for name, text in _metadata(own).items()}
    files[f"{info}/RECORD"] = _record(files, info)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return f"peergate-{own.version}-py3-none-any.whl", written.getvalue()


def _metadata(own: Distribution) -> dict[str, str]:
    texts = {name: own.read_text(name) for name in ("METADATA", "entry_points.txt")}
    return {name: text for name, text in texts.items() if text} | {"WHEEL": _WHEEL}


def _record(files: dict[str, bytes], info: str) -> bytes:
    """Return the list of files with their digests, in the form of PEP 376 and PEP 427."""
    lines: list[str] = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()


def constraints_of_this() -> bytes:
    """Return the version of everything installed here. Builds for one kind of machine are left to the pod."""
    found = {
        re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(): one.version.partition("+")[0]
        for one in distributions()
        if one.metadata["Name"]
    }
    found.pop("peergate", None)
    return "".join(f"{name}=={version}\n" for name, version in sorted(found.items())).encode()
