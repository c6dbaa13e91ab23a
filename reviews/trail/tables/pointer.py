"""Where the rows of a trail are: in a file of the run folder, or in a database that a file there points to.

Everywhere a trail is named by the path that its SQLite file has or would have. ``trail.postgres`` beside it says that
the rows are in Postgres, and under which number. It holds no name of a user and no password: who may connect is said
by ``PEERGATE_DATABASE`` or by a file of the workspace that only its owner can read, beside the keys.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import ValidationError

from reviews.trail.keys import FOLDER
from reviews.trail.store import write_durably
from specs.digests import Contract
from specs.errors import AuditDamage, UserError
from specs.masking import know, secrets_of_address
from specs.regular_files import read_regular

SUFFIX = ".postgres"
VARIABLE = "PEERGATE_DATABASE"
FILE = "database"
"""In the folder of the workspace's keys, which the reviewer's process and sandboxes do not see."""
_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


class Pointer(Contract):
    """The content of ``trail.postgres``."""

    schema_version: Literal[1] = 1
    log: UUID
    """The number of this trail in its database."""
    database: str
    """Host, port and name of the database, for messages."""


def pointer_path(trail: Path) -> Path:
    """Return where the pointer of a trail lies (whether or not it does)."""
    return trail.with_suffix(SUFFIX)


def is_trail(trail: Path) -> bool:
    """Say whether there is a trail of this name, in a file or in a database."""
    return trail.is_file() or pointer_path(trail).is_file()


def pointer_of(trail: Path) -> Pointer | None:
    """Return the pointer of a trail; None when its rows are in a file.

    Raises:
        AuditDamage: it cannot be read, or there is a file of rows beside it.
    """
    path = pointer_path(trail)
    try:
        found = Pointer.model_validate_json(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise AuditDamage(f"does not point to a trail: {str(error).splitlines()[0]}", where=str(path)) from error
    if trail.exists():
        raise AuditDamage(f"there are two trails: {trail.name} and {path.name}", where=str(trail.parent))
    return found


def database_of(trail: Path) -> str | None:
    """Return the address of the workspace's database, with what it takes to connect; None when it has none.

    Args:
        trail: a trail of the workspace, whether it is there or not.

    Raises:
        UserError: the address is none, or others than its owner can read the file it is in.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return checked(named, VARIABLE)
    path = database_file(trail.resolve().parent.parent)
    try:
        mode, text = stat.S_IMODE(path.stat().st_mode), path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the database's address cannot be read: {error}", where=str(path)) from error
    if mode & 0o077:
        raise UserError(f"the file has mode {mode:o}, others can read it", where=str(path), hint=f"chmod 600 {path}")
    return checked(text, str(path))


def database_file(runs: Path) -> Path:
    """Return the file of a workspace, the folder that holds its run folders, with the address of its database."""
    return runs / FOLDER / FILE


def keep_database(runs: Path, address: str) -> None:
    """Write down which database the sessions of a workspace are recorded in from now on.

    Raises:
        UserError: it is no address.
    """
    path = database_file(runs)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    previous = os.umask(0o077)
    try:
        write_durably(path, f"{checked(address, '--database')}\n".encode())
    finally:
        os.umask(previous)


def checked(address: str, where: str) -> str:
    """Return an address if it is one. It is never repeated in a message: it may hold a password.

    Raises:
        UserError: it is none.
    """
    try:
        parts = urlsplit(address)
        fits = parts.scheme in ("postgresql", "postgres") and bool(parts.path.strip("/")) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise UserError("this is no address of a Postgres database", where=where, hint=f"write {_FORM}")
    for one in secrets_of_address(address):
        know("the database's address", one)
    return address


def shown(address: str) -> str:
    """Return what of an address may be shown: where the database is, without user, password and options."""
    parts = urlsplit(address)
    at = parts.netloc.rpartition("@")[2]
    return f"postgresql://{at}{parts.path}"
