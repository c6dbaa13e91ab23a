"""`peergate audit anchor | cosign | rotate`: proof beyond what a trail holds."""

from __future__ import annotations

import getpass
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer

from reviews.history.history import History
from reviews.requests import request_record
from reviews.trail.anchor_places import keep_by_command, keep_in_folder, keep_in_git
from reviews.trail.anchors import Anchor, Findings, check_anchors, read_anchor
from reviews.trail.chain.keys import FOLDER, KeyFolder, create_key, load_key
from reviews.trail.chain.signed_head import COSIGNER_KEY, Checkpoint, NoteKey, cosign_text, parse_note
from reviews.trail.chain.store import write_durably
from reviews.trail.chain.tiles import CHECKPOINT, is_export, read_bundles
from reviews.trail.integrity import TrailVerification, walk_trail
from reviews.trail.key_rotation import rotate
from reviews.trail.tables.open_table import read_entries, read_trail
from reviews.trail.tables.pointer import is_trail, pointer_of, pointer_path
from reviews.trail.tables.trail_file import holds_trail, reading
from reviews.trail.trail import Trail
from sessions.commands.named_place import folder_of
from sessions.commands.options import DEFAULT_RUNS, By, Runs, TrailRun
from sessions.commands.output import print_line
from sessions.run.disk_errors import telling_no_place
from sessions.run.lease import lease, stand_by
from sessions.run.private_files import as_the_user_wants
from sessions.run.run_layout import TRAIL, trail_name
from specs.system.errors import AuditDamage, PeergateError, UserError
from specs.system.regular_files import read_regular
from specs.trail.entry import Role

app = typer.Typer()


def signed_head(place: Path) -> tuple[TrailVerification, Checkpoint, bytes]:
    """Walk through the trail of a run folder or an export and return its newest signed head.

    Raises:
        AuditDamage: the trail is damaged.
        UserError: no signed trail.
    """
    if is_export(place):
        note = read_regular(place / CHECKPOINT, 1 << 16)
        walk = TrailVerification().go_through(enumerate(read_bundles(place, parse_note(note, CHECKPOINT).size)))
        walk.check_head(note, CHECKPOINT)
    else:
        path = place / trail_name(place)
        if not is_trail(path):
            raise UserError("no trail", where=str(place), hint="name a run folder or an export")
        trail = read_trail(path)
        walk, note = walk_trail(trail), trail.head[2] if trail.head else b""
    if walk.damage:
        hint = "nothing was signed or kept; `peergate audit verify` lists all damage"
        raise AuditDamage(walk.damage[0], where=str(place), hint=hint)
    if walk.policy is None:
        raise UserError("this trail has no signed head: it is empty", where=str(place))
    return walk, parse_note(note), note


@app.command("anchor")
def anchor(
    run: TrailRun = None,
    folder: Annotated[Path | None, typer.Option("--folder", help="A folder elsewhere: another disk or host.")] = None,
    git: Annotated[str | None, typer.Option("--git", help="A git remote; branch peergate-heads.")] = None,
    command: Annotated[str | None, typer.Option("--command", help="Gets the head on its standard input.")] = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Keep the newest signed head elsewhere.

    First compares the trail with every existing head.
    """
    if folder is None and git is None and command is None:
        raise UserError("no destination specified", hint="use --folder DIR, --git REMOTE or --command CMD")
    walk, head, note = signed_head(folder_of(run, runs))
    agrees = f"{head.size} entries, agrees with {{}} heads that were kept before"
    with as_the_user_wants():
        if folder is not None:
            with telling_no_place(folder):
                path, older = keep_in_folder(folder, walk, note)
            print_line(f"{path}: {agrees.format(older)}")
        if git is not None:
            commit, older = keep_in_git(git, walk, note)
            print_line(f"{git} {commit}: {agrees.format(older)}")
        if command is not None:
            keep_by_command(command, walk, note)
            print_line(f"{command}: {head.size} entries")


@app.command("cosign")
def cosign(
    name: Annotated[str, typer.Option("--name", help="Name of the witness, for example ada.example.org.")],
    key: Annotated[Path, typer.Option("--key", help="Private ed25519 key in PEM; created if it does not exist.")],
    run: TrailRun = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the note to this file, or add to it.")] = None,
    seen_paths: Annotated[
        list[Path] | None, typer.Option("--seen", help="Head signed earlier; the trail must extend it.")
    ] = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Check a trail and sign its newest head as a witness or as a person."""
    place = folder_of(run, runs)
    walk, head, _ = signed_head(place)
    findings = Findings()
    check_anchors(walk, [read_anchor(path) for path in seen_paths or ()], None, findings)
    if findings.damage:
        raise AuditDamage(findings.damage[0], where=str(place), hint="nothing was signed")
    if not key.exists():
        with telling_no_place(key):
            create_key(key)
        print_line(f"made a new key: {key}", err=True)
    signer = load_key(key)
    if " " in name or "+" in name or not name:
        raise UserError(f"'{name}' cannot be the name of a witness", hint="no spaces and no plus sign")
    if out is not None and out.exists():
        there: Anchor = read_anchor(out)
        if there.head.text == head.text:
            head = there.head
    public = NoteKey(name, COSIGNER_KEY, signer.public)
    signed = head.with_signatures(cosign_text(public, signer.sign, head.text, int(time.time())))
    if out is None:
        sys.stdout.write(str(signed))
    else:
        with as_the_user_wants(), telling_no_place(out):
            write_durably(out, str(signed).encode())
    print_line(f"witness key: {public}", err=True)


@app.command("rotate")
def rotate_key(
    role: Annotated[Role, typer.Argument(help="Whose key to replace.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; recorded in every open trail.")],
    revoke: Annotated[bool, typer.Option("--revoke", help="The old key may be stolen.")] = False,
    by: By = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Replace the signing key of a role in every open trail.

    The trails are those of the workspace. Refuses while a session of the workspace runs: it signs with the keys it
    began with.
    """
    if not reason.strip():
        raise UserError("missing reason", hint="--reason WHY")
    keys = KeyFolder(runs.resolve() / FOLDER)
    trails: list[tuple[Path, str]] = []
    names = {*runs.glob(f"*/{TRAIL}"), *runs.glob(f"*/{request_record.TRAIL}")}
    names |= {path.parent / TRAIL for path in runs.glob(f"*/{pointer_path(Path(TRAIL)).name}")}
    for path in sorted(names):
        if pointer_of(path) is None:
            with reading(path) as connection:
                if not holds_trail(connection):
                    continue
        history = History(read_entries(path))
        if history and not history.is_closed:
            trails.append((path, history.session))
    with ExitStack() as owned:
        for path, session in trails:
            if path.name == TRAIL:
                # A session that runs could not sign its next entry.
                current = owned.enter_context(lease(path.parent))
                with closing(Trail(path, session)) as trail:
                    stand_by(trail, current)
        try:
            new = rotate(keys, trails, role, by=by or getpass.getuser(), reason=reason, revoke=revoke)
        except PeergateError as error:
            error.hint = error.hint or "repeat the command: it continues where it stopped"
            raise
    print_line(f"{role}: new key {new}, recorded in {len(trails)} open trails under {runs}")
