"""Reads files for a requested review: text only, bounded, without secrets, with an index of what was left out.

Each file is read once: digest, size and the text that the reviewer sees come from the same bytes. Links inside a folder
are never followed.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

from reviews.evidence.row_queries import MOST_READABLE
from specs.system.digests import digest_bytes, digest_file
from specs.system.errors import UserError
from specs.system.masking import Masker
from specs.system.regular_files import open_regular
from specs.trail.requested_review import OmittedFile, ReadFile, RequestReading

MAX_CONTEXT_BYTES = 64 * 1024
MOST_BESIDE = 16 * MOST_READABLE
"""Characters that tools may look into, which are all kept, for the audit."""
MOST_TEXTS = 200
MOST_NAME = 100
MAX_LISTED = 400
"""More left-out files than this are counted, not listed."""
MAX_WALKED = 20_000
MAX_DIGESTED_BYTES = 64 * 2**20
"""The digest of a larger file that is left out is not computed: it may be gigabytes of weights."""

SECRET_NAMES = (
    ".env .env.* *.env .netrc .npmrc .pypirc .htpasswd id_rsa* id_dsa* id_ecdsa* id_ed25519* *.pem *.key *.p12 *.pfx "
    "*.kdbx *.keystore *.jks credentials credentials.* *_credentials.json *-credentials.json secret secret.* secrets "
    "secrets.* token token.* *.token service_account*.json"
)
_CODE_SUFFIXES = (".py", ".md", ".rst", ".js", ".ts", ".go", ".rs", ".c", ".h")
"""``secrets.py`` is a module, not a secret."""
_MADE_BY_TOOLS = ("__pycache__", "node_modules", "site-packages")
_TRAILS = ("trail.sqlite", "reviews.sqlite")
_OTHER_LINE_ENDS = re.compile("[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")

Role = Literal["context", "file", "claims", "evidence"]


class ReadingLimits(NamedTuple):
    """How much is read at most."""

    file_bytes: int
    total_bytes: int
    files: int

    def __str__(self) -> str:
        return f"{self.file_bytes // 1024} KiB a file, {self.total_bytes // 1024} KiB and {self.files} files in all"


FOR_MODEL = ReadingLimits(128 * 1024, 256 * 1024, 400)
"""Input of a model is paid for, and a model overlooks the middle of a long text."""
FOR_RULES = ReadingLimits(1024 * 1024, 8 * 1024 * 1024, 5000)


class RequestReader:
    """Collects the files of one request in ``reading``."""

    def __init__(
        self, masker: Masker, readable: Callable[[Path], bool] = lambda _: True, limits: ReadingLimits = FOR_MODEL
    ) -> None:
        self.limits = limits
        self._masker = masker
        self._readable = readable
        self._files: list[ReadFile] = []
        self._left_out: list[OmittedFile] = []
        self._more = 0
        self._shown_bytes = 0
        self._seen: set[Path] = set()
        self.sources: dict[str, Path] = {}
        """Every regular file by its name, those too large to be shown included."""
        self.beside: dict[str, str] = {}
        """What a model may look into with tools, by name: texts without secrets that it is not shown."""
        self._beside_characters = 0
        self._walked = 0

    @property
    def reading(self) -> RequestReading:
        """Return what was read so far."""
        return RequestReading(files=tuple(self._files), left_out=tuple(self._left_out), more_left_out=self._more)

    def add(self, arguments: str | Path, role: Role | Callable[[str], Role]) -> None:
        """Read a file, or every text file below a folder; ``role`` may depend on the name.

        Raises:
            UserError: there is no such file or folder, it may not be read, or it is neither.
        """
        path, mode = _look(arguments)
        if not self._readable(path):
            raise UserError(f"'{arguments}' may not be read here", hint="only files the requester may see are sent")
        name = _name_of(path, Path(arguments))
        is_a: Callable[[str], Role] = role if callable(role) else lambda _: role
        if stat.S_ISDIR(mode):
            for inner, text in self._walk(path, "" if name == "." else f"{name}/", path):
                self._take(inner, text, is_a(text), named=False)
        elif stat.S_ISREG(mode):
            self._take(path, name, is_a(name), named=True)
        else:
            raise UserError(f"'{arguments}' is neither a file nor a folder")

    def add_text(self, name: str, data: bytes, role: Role) -> None:
        """Take bytes that are not a file: inline context, values of a trail."""
        self._show(self._free_name(name), data, role)

    def _take(self, path: Path, name: str, role: Role, *, named: bool) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        if not self._readable(path):
            self.leave_out(name, "may not be read here")
            return
        size: int | None = None
        try:
            size = path.stat().st_size
            if _looks_secret(path.name):
                # Not even its digest: that of a short secret can be guessed.
                self.leave_out(name, "its name is that of a secret", None, size)
                return
            name = self._free_name(name)
            self.sources[name] = path
            limit = min(self.limits.file_bytes, MAX_CONTEXT_BYTES) if role == "context" else self.limits.file_bytes
            if size > limit:
                digest = digest_file(path) if size <= MAX_DIGESTED_BYTES else None
                self.leave_out(name, f"larger than {limit} bytes", digest, size)
            else:
                self._show(name, _read(path, limit), role)
        except OSError as error:
            if named:
                raise UserError(f"'{name}' cannot be read: {error.strerror or error}") from error
            self.leave_out(name, f"cannot be read: {error.strerror or type(error).__name__}", None, size)

    def _show(self, name: str, data: bytes, role: Role) -> None:
        digest, size = digest_bytes(data), len(data)
        limit = MAX_CONTEXT_BYTES if role == "context" else self.limits.file_bytes
        text = _text_of(data)
        if text is None:
            self.leave_out(name, "not UTF-8 text", digest, size)
        elif not text.strip():
            self.leave_out(name, "empty", digest, size)
        elif size > limit:
            self.leave_out(name, f"larger than {limit} bytes", digest, size)
        elif len(self._files) >= self.limits.files or self._shown_bytes + size > self.limits.total_bytes:
            self.leave_out(name, f"over the limit: {self.limits}", digest, size)
        else:
            self._shown_bytes += size
            text, secrets = self._masker.mask(text)
            self._files.append(ReadFile(name=name, role=role, digest=digest, bytes=size, masked=secrets, text=text))

    def add_beside(self, name: str, text: str) -> None:
        """Let a model look into a text with tools, unless its prompt or another name already holds the text."""
        text, _ = self._masker.mask(text)
        texts = (file.text for file in self._files)
        if not text.strip() or self._beside_characters + len(text) > MOST_BESIDE or len(self.beside) >= MOST_TEXTS:
            return
        if text not in self.beside.values() and text.removesuffix("\n") not in texts:
            self.beside[self._tool_name(name)] = text
            self._beside_characters += len(text)

    def add_rest_beside(self) -> None:
        """Let a model look into the text files that were not shown, which are too large or too many."""
        texts = {file.name for file in self._files}
        for name, path in self.sources.items():
            if len(self.beside) >= MOST_TEXTS or self._beside_characters >= MOST_BESIDE:
                return
            if name not in texts:
                with suppress(OSError):
                    self.add_beside(name, _beginning_of(_read(path, 4 * MOST_READABLE)))

    def leave_out(self, name: str, why: str, digest: str | None = None, size: int | None = None) -> None:
        """Note a file that is not shown."""
        if len(self._left_out) >= MAX_LISTED:
            self._more += 1
        else:
            self._left_out.append(OmittedFile(name=_encodable(name), why=why, digest=digest, bytes=size))

    def _free_name(self, name: str) -> str:
        texts, name = {*self.sources, *(file.name for file in self._files)}, _encodable(name)
        numbered = (f"{number}/{name}" for number in count(2))
        return name if name not in texts else next(text for text in numbered if text not in texts)

    def _tool_name(self, name: str) -> str:
        """Return a name that a tool takes as an argument: letters, digits, and ``_.-``."""
        plain = (re.sub(r"[^A-Za-z0-9_.-]", "-", name).lstrip("-._") or "file")[-MOST_NAME:].lstrip("-._")
        numbered = (f"{plain}.{number}" for number in count(2))
        return plain if plain not in self.beside else next(text for text in numbered if text not in self.beside)

    def _walk(self, folder: Path, prefix: str, root: Path) -> Iterator[tuple[Path, str]]:
        """Yield the regular files below a folder in the order of their names; what is skipped is noted."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self.leave_out(prefix.rstrip("/") or folder.name, f"cannot be read: {error.strerror}")
            return
        for entry in entries:
            name = f"{prefix}{entry.name}"
            self._walked += 1
            if self._walked > MAX_WALKED:
                if self._walked == MAX_WALKED + 1:
                    self.leave_out(name, f"more than {MAX_WALKED} files: neither this nor what follows was looked at")
                return
            if entry.is_symlink():
                where = "in" if _leads_into(entry, root) else "out of"
                self.leave_out(name, f"a symbolic link that leads {where} the folder")
            elif entry.name.startswith(".") and not _looks_secret(entry.name):
                self.leave_out(name, "hidden")
            elif entry.is_dir(follow_symlinks=False):
                if entry.name in _MADE_BY_TOOLS:
                    self.leave_out(name, "a folder that tools make")
                elif any((Path(entry.path) / trail).exists() for trail in _TRAILS):
                    self.leave_out(name, "a run folder: it is read where it is named itself")
                else:
                    yield from self._walk(Path(entry.path), f"{name}/", root)
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path), name
            else:
                self.leave_out(name, "neither a file nor a folder")


def _look(arguments: str | Path) -> tuple[Path, int]:
    try:
        path = Path(arguments).resolve(strict=True)
        return path, path.stat().st_mode
    except FileNotFoundError as error:
        raise UserError(f"no such file or folder: '{arguments}'") from error
    except (OSError, ValueError, RuntimeError) as error:  # No permission, a NUL in the name, a loop of links.
        raise UserError(f"'{arguments}' cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _name_of(path: Path, input_path: Path) -> str:
    """Return the name a file is shown under: relative, so that no home folder shows whose work it is."""
    here = Path.cwd()
    if path.is_relative_to(here):
        return path.relative_to(here).as_posix()
    return path.name or input_path.name or "files"


def _read(path: Path, limit: int) -> bytes:
    """Read a file up to just past the limit: a file that grows meanwhile ends there."""
    with open_regular(path) as handle:
        return handle.read(limit + 1)


def _text_of(data: bytes) -> str | None:
    """Return bytes as text with one kind of line end and none after the last line; None when they are not text."""
    if b"\x00" in data:
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    # Only a line feed ends a line, so that nothing in a file can begin a line without a number.
    return _OTHER_LINE_ENDS.sub(" ", text.replace("\r\n", "\n")).removesuffix("\n")


def _beginning_of(data: bytes) -> str:
    """Return what can be read with tools of a text; empty if the bytes are none."""
    if b"\x00" in data:
        return ""
    try:
        # What was cut may end within a character.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data, final=len(data) <= 4 * MOST_READABLE)
    except UnicodeDecodeError:
        return ""
    return text[:MOST_READABLE]


def _looks_secret(name: str) -> bool:
    lower = name.lower()
    return not lower.endswith(_CODE_SUFFIXES) and any(fnmatch(lower, part) for part in SECRET_NAMES.split())


def _leads_into(entry: os.DirEntry[str], root: Path) -> bool:
    try:
        return Path(entry.path).resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _encodable(name: str) -> str:
    """Return a file name that can be stored: bytes that are not UTF-8 come as lone surrogates."""
    return name.encode("utf-8", "replace").decode("utf-8")
