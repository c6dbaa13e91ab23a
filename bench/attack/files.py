"""Family ``files``: changed bytes, deletions, swaps and planted files in a closed run folder and in its export.

An attack is missed if `peergate audit verify` finds nothing and does not list the file as not covered, if of an export
``verify/`` finds nothing, or if either ends in an error. A change of a file that is listed counts neither way.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.attack.exports import build_verifier, closed_session, go_codes, missing_packages
from bench.attack.forged_trail import rewrite
from bench.attack.outcome import Outcome
from reviews.audit.export import export_run, verify_export
from reviews.audit.verify import Audit, verify_run
from sessions.pages.report.trail_page import page_damage, trail_page
from sessions.run.run_layout import STORE, TRAIL

FLIPS = 3
"""Flips in every file."""
MORE = 60
"""Deletions, swaps and planted files in each of the two folders."""


def run(seed: int, folder: Path) -> Outcome:
    """Attack every file of a small closed session and of its export."""
    outcome = Outcome()
    if missing := missing_packages():
        return Outcome(not_run=missing)
    session = closed_session(folder)
    export_run(session, TRAIL, STORE, folder / "export", trail_page)
    attack_folder(outcome, session, verified_run, random.Random(seed), FLIPS, MORE)
    program = build_verifier(folder)
    attack_folder(
        outcome, folder / "export", lambda place: verified_export(place, program), random.Random(seed), FLIPS, MORE
    )
    return outcome


def verified_run(place: Path) -> Audit:
    """Verify a run folder as the command does."""
    return verify_run(place, TRAIL, STORE)


def verified_export(place: Path, program: Path) -> Audit:
    """Verify an export as the command does and with ``verify/``, which has to agree but for what the page shows."""
    audit = verify_export(place)
    agreed = go_codes(program, [place])[0] == 1
    if audit.damage and not agreed:
        # Let it count as missed.
        audit.damage.clear()
    elif not audit.damage:
        audit.damage.extend(page_damage(place, audit.notes))
    return audit


def attack_folder(
    outcome: Outcome, place: Path, verified: Callable[[Path], Audit], chance: random.Random, flips: int, more: int
) -> None:
    """Change one thing at a time and put it back.

    Args:
        outcome: takes the counts.
        place: a run folder or an export in which everything holds.
        verified: verifies it.
        chance: decides what is changed.
        flips: bits of every file to flip, one at a time.
        more: further attacks: deletions, swaps and planted files.

    Raises:
        RuntimeError: it does not hold to begin with.
    """
    before = verified(place)
    if before.exit_code != 0:
        raise RuntimeError(f"{place} does not hold: {before.damage}")
    files = sorted(path for path in place.rglob("*") if path.is_file())
    attacks: list[tuple[str, list[Path], Callable[[], None]]] = []
    for path in files:
        for _ in range(flips if path.stat().st_size else 0):
            attacks.append(("a bit flipped", [path], _flip(path, chance)))
    for _ in range(more):
        current_path, two = chance.sample(files, 2)
        attacks.append(
            chance.choice(
                (_delete_file(current_path), _swap_files(current_path, two), _plant_file(place, files, chance))
            )
        )
    for what, touched, change in attacks:
        _try(outcome, place, verified, what, touched, change, before)
    after = verified(place)
    outcome.record(after.exit_code == 0, f"{place.name} does not hold any more after everything was put back")


def _try(
    outcome: Outcome,
    place: Path,
    verified: Callable[[Path], Audit],
    what: str,
    touched: list[Path],
    change: Callable[[], None],
    before: Audit,
) -> None:
    kept_data = {path: path.read_bytes() if path.is_file() else None for path in touched}
    change()
    message = f"{what}: {', '.join(path.relative_to(place).as_posix() for path in touched)} in {place.name}"
    try:
        audit = verified(place)
        if audit.exit_code in (1, 3):
            outcome.record(True, message)
        elif not all(_is_listed(path.relative_to(place).as_posix(), before, audit) for path in touched):
            outcome.record(False, message)
    except Exception as error:  # whatever it is, it is a defect
        outcome.record(False, f"{message}: {type(error).__name__}: {error}")
    finally:
        for path, data in kept_data.items():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            if data is not None:
                rewrite(path, data)
            while path.parent != place and not any(path.parent.iterdir()):
                path = path.parent
                path.rmdir()


def _is_listed(name: str, *audits: Audit) -> bool:
    """Return whether a file, or what lies in a folder, was listed as not covered before or after."""
    listed = {text for audit in audits for text in audit.not_covered}
    return name in listed or any(text.startswith(f"{name}/") for text in listed)


def _flip(path: Path, chance: random.Random) -> Callable[[], None]:
    place, bit = chance.randrange(path.stat().st_size), 1 << chance.randrange(8)

    def change() -> None:
        data = bytearray(path.read_bytes())
        data[place] ^= bit
        rewrite(path, bytes(data))

    return change


def _delete_file(path: Path) -> tuple[str, list[Path], Callable[[], None]]:
    return "deleted", [path], path.unlink


def _swap_files(path: Path, two: Path) -> tuple[str, list[Path], Callable[[], None]]:
    def change() -> None:
        first, second = path.read_bytes(), two.read_bytes()
        rewrite(path, second)
        # Two empty files, or the same file twice in a folder, are not other folder when they change places.
        rewrite(two, first if first != second else first + b"\n")

    return "swapped", [path, two], change


def _plant_file(place: Path, files: list[Path], chance: random.Random) -> tuple[str, list[Path], Callable[[], None]]:
    """Put something where nothing was, or in the place of a file."""
    name = chance.choice([
        "more.txt", "trail.sqlite-wal", "trail.sqlite-journal", "state.sqlite", "jobs/x/exit.json", "report/more.md",
        "store/x", "store/aa/x", "store/aa/bb/cc", "store/aa/" + "0" * 62, ".hidden", "keys/x.pem",
        "proofs/x",
    ])  # fmt: skip
    path = place / name if chance.random() < 0.6 else chance.choice(files)
    kinds: dict[str, Callable[[], object]] = {
        "a file": lambda: path.write_bytes(b"planted"),
        "a folder": lambda: rewrite(path / "planted", b"planted"),
        "a link": lambda: path.symlink_to("/etc/hostname"),
        "a FIFO": partial(os.mkfifo, path),
    }
    kind = chance.choice(sorted(kinds))

    def change() -> None:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        kinds[kind]()

    return f"{kind} planted", [path], change
