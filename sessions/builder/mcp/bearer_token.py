"""The bearer token of the HTTP transport: a file only its owner can read, made when it is not there."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from specs.errors import UserError
from specs.masking import know

SHORTEST = 32
"""Characters; a token made here has 43, which are 256 random bits."""
NAME = "the bearer token"


def read_token(path: Path) -> str:
    """Return the token in a file; a file that is not there is made, with a new one.

    Raises:
        UserError: somebody else may read or change the file, it is no plain file, or its token is too short.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return _make(path)
    except OSError as error:
        raise UserError(f"the token cannot be read: {error.strerror}", where=str(path)) from error
    with os.fdopen(handle, "rb") as file:
        # Of the open file, so that nobody puts another one in its place between the look and the reading.
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UserError("the token's file is no plain file", where=str(path))
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077 or found.st_uid != os.getuid():
            raise UserError(
                f"the token's file has mode {mode:04o} and owner {found.st_uid}, not 0600 and {os.getuid()}",
                where=str(path),
                hint=f"chmod 600 {path}, and take a new token if others could read it",
            )
        token = file.read(4096).decode("utf-8", "replace").strip()
    if len(token) < SHORTEST or not token.isascii() or any(one.isspace() for one in token):
        raise UserError(
            f"the token is not one word of at least {SHORTEST} ASCII characters",
            where=str(path),
            hint="remove the file: a new token is made",
        )
    know(NAME, token)
    return token


def _make(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UserError(f"the token's file cannot be made: {error.strerror}", where=str(path)) from error
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    know(NAME, token)
    return token
