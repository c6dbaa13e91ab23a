"""Where the rows of a trail are: in a file of the run folder, or in a database that a file there points to.

A trail is named by the path that its SQLite file has or would have. A folder may be a stranger's: its database is
connected to only if PEERGATE_DATABASE names it, or this user recorded it for this workspace (``start --database``).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from pydantic import ValidationError

from reviews.trail.chain.keys import FOLDER
from reviews.trail.chain.store import write_durably
from specs.system.confinement.task_file import has_mark, keep_mark
from specs.system.digests import Contract, digest_value
from specs.system.errors import AuditDamage, UserError
from specs.system.masking import know, secrets_of_address
from specs.system.regular_files import read_regular
from specs.system.text import plain

SUFFIX = ".postgres"
VARIABLE = "PEERGATE_DATABASE"
FILE = "database"
"""In the folder of the workspace's keys, which the reviewer's process and sandboxes do not see."""
_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
PARAMETERS = frozenset({
    "host", "port", "sslmode", "sslrootcert", "channel_binding", "gssencmode", "target_session_attrs",
    "load_balance_hosts", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
    "tcp_user_timeout",
})  # fmt: skip
"""What an address may say after its question mark: nothing that names a file or service with a password or a key."""


class Pointer(Contract):
    """The content of ``trail.postgres``."""

    schema_version: Literal[1] = 1
    log: UUID
    """The number of this trail in its database."""
    database: str
    """Host, port and name of the database, for messages."""


def pointer_path(trail: Path) -> Path:
    """Return the path of a trail's pointer, whether it exists or not."""
    return trail.with_suffix(SUFFIX)


def is_trail(trail: Path) -> bool:
    """Return whether there is a trail of this name, in a file or in a database."""
    return trail.is_file() or pointer_path(trail).is_file()


def pointer_of(trail: Path) -> Pointer | None:
    """Return the pointer of a trail; None when its rows are in a file.

    Raises:
        AuditDamage: it cannot be read, or there is a file of rows next to it.
    """
    path = pointer_path(trail)
    try:
        pointer = Pointer.model_validate_json(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise AuditDamage(f"does not point to a trail: {str(error).splitlines()[0]}", where=str(path)) from error
    if trail.exists():
        raise AuditDamage(f"there are two trails: {trail.name} and {path.name}", where=str(trail.parent))
    return pointer


def database_of(trail: Path) -> str | None:
    """Return the address of the database of a trail's workspace, with its password; None when it has none.

    Raises:
        UserError: it is not an address, others than its owner can read its file, or this user never recorded it.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return check_address(named, VARIABLE)
    path = database_file(trail.resolve().parent.parent)
    try:
        mode, text = stat.S_IMODE(path.stat().st_mode), read_regular(path).decode().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the database's address cannot be read: {error}", where=str(path)) from error
    if mode & 0o077:
        raise UserError(f"the file has mode {mode:o}, others can read it", where=str(path), hint=f"chmod 600 {path}")
    address = check_address(text, str(path))
    if not has_mark("databases", _mark(path.parent.parent.parent, address)):
        message = f"this workspace names {redact_address(address)}, which you have not recorded for it: "
        message += "no connection was made"
        hint = "if it is yours, `peergate start --database` records it; or set PEERGATE_DATABASE"
        raise UserError(message, where=str(path), hint=hint)
    return address


def _mark(runs: Path, address: str) -> str:
    """Return the name of this user's mark for a workspace and the address of its database."""
    return digest_value([str(runs.resolve()), address]).rpartition(":")[2]


def database_file(runs: Path) -> Path:
    """Return the file of a workspace, the folder that holds its run folders, with the address of its database."""
    return runs / FOLDER / FILE


def keep_database(runs: Path, address: str) -> None:
    """Record the database of a workspace's later sessions; raises UserError if it is not an address."""
    path = database_file(runs)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(path, f"{check_address(address, '--database')}\n".encode(), mode=0o600)
    keep_mark("databases", _mark(runs, address))


def check_address(address: str, where: str) -> str:
    """Return an address, which no message repeats: it may hold a password; raises UserError if it is not one."""
    try:
        parts = urlsplit(address)
        fits = parts.scheme in ("postgresql", "postgres") and bool(parts.path.strip("/")) and parts.port != 0
        unknown = sorted(set(parse_qs(parts.query, keep_blank_values=True)) - PARAMETERS)
    except ValueError:
        fits, unknown = False, []
    if fits and unknown:
        hint = f"it may set {', '.join(sorted(PARAMETERS))}"
        raise UserError(f"the address may not set {plain(', '.join(unknown), 80)}", where=where, hint=hint)
    if not fits:
        raise UserError("invalid address of a Postgres database", where=where, hint=f"write {_FORM}")
    for of_address in secrets_of_address(address):
        know("the database's address", of_address)
    return address


def redact_address(address: str) -> str:
    """Return an address for messages: without user, password and options."""
    parts = urlsplit(address)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
