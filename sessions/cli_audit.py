"""The commands `peergate audit ...`: read, verify, export and anchor the trail of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from specs.errors import UserError

Role = Literal["log", "builder", "reviewer", "human"]
"""As in ``specs/trail/key_policy.py``, which takes long to import."""

audit_app = typer.Typer(help="Read and verify the trail of a session.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
RunPath = Annotated[Path, typer.Argument(help="Run folder of a session, or its name under ./runs.")]
Place = Annotated[Path, typer.Argument(metavar="RUN|EXPORT", help="Run folder, its name under ./runs, or an export.")]
Kind = Annotated[list[str] | None, typer.Option("--kind", help="Only entries of this kind; can be repeated.")]
Stage = Annotated[str | None, typer.Option("--stage", help="Only entries of this stage.")]
Attempt = Annotated[int | None, typer.Option("--attempt", help="Only entries of this attempt.", min=0)]
Decision = Annotated[str | None, typer.Option("--decision", help="Only decisions with this outcome.")]
ByReviewer = Annotated[str | None, typer.Option("--reviewer", help="Only what this reviewer judged.")]
Overrides = Annotated[bool, typer.Option("--overrides", help="Only what people lifted, amended or took back.")]
OpenConditions = Annotated[
    bool, typer.Option("--open-conditions", help="Only decisions with a condition that is still open.")
]
MinCost = Annotated[float | None, typer.Option("--min-cost", help="Only entries about at least this many USD.", min=0)]
Limit = Annotated[int, typer.Option("--limit", help="At most this many, the newest; 0 for all.", min=0)]


@audit_app.command("verify")
def audit_verify(
    run: Place,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Policy kept elsewhere: whose keys may have signed.")
    ] = None,
    anchor: Annotated[
        list[Path] | None, typer.Option("--anchor", help="Signed head kept elsewhere; can be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Verify a trail and its evidence: signatures, tree, digests, grants, and every number and decision derived again.

    Read-only and offline. Exit codes: 0 verified and closed, 1 tampered, 2 valid but open or newer than the anchors
    given, 3 unreadable.
    """
    from sessions.commands.audit import verify_command as audit

    audit.verify(run, policy, anchor or [], json)


@audit_app.command("list")
def audit_list_entries(
    run: Place,
    kind: Kind = None,
    stage: Stage = None,
    attempt: Attempt = None,
    decision: Decision = None,
    reviewer: ByReviewer = None,
    overrides: Overrides = False,
    open_conditions: OpenConditions = False,
    min_cost: MinCost = None,
    limit: Limit = 1000,
    json: Json = False,
) -> None:
    """List the entries of a trail, oldest first."""
    from sessions.commands.audit import list_command as audit_list

    chosen = audit_list.Filters(kind, stage, attempt, decision, reviewer, overrides, open_conditions, min_cost, limit)
    audit_list.list_entries(run, chosen, None, json)


@audit_app.command("search")
def audit_search(
    run: Place,
    text: Annotated[str, typer.Argument(help="Text in the entry; letter case does not matter.")],
    kind: Kind = None,
    stage: Stage = None,
    attempt: Attempt = None,
    decision: Decision = None,
    reviewer: ByReviewer = None,
    overrides: Overrides = False,
    open_conditions: OpenConditions = False,
    min_cost: MinCost = None,
    limit: Limit = 1000,
    json: Json = False,
) -> None:
    """List the entries that hold a text; the filters are those of list."""
    from sessions.commands.audit import list_command as audit_list

    chosen = audit_list.Filters(kind, stage, attempt, decision, reviewer, overrides, open_conditions, min_cost, limit)
    audit_list.list_entries(run, chosen, text, json)


@audit_app.command("show")
def audit_show(
    run: Place,
    entry: Annotated[
        str, typer.Argument(help="Entry number or key, a sha256 digest of the content store, or the word claim.")
    ],
    name: Annotated[
        str | None, typer.Argument(help="After claim: METRIC, STAGE.METRIC or STAGE.ATTEMPT.METRIC; all without.")
    ] = None,
    json: Json = False,
) -> None:
    """Show one entry with everything it points to; a verdict with its packet, request, raw rows and grant.

    With the word claim: follow a number of the report, as in show RUN claim accuracy_gain, to where it is stated, the
    metrics entry, the measuring code and the lines of the raw rows, with what the builder claimed. Ends with 5 when
    something on the way does not hold.
    """
    if entry == "claim":
        from sessions.commands.audit import claim_command

        claim_command.show_claim(run, name, json)
        return
    if name is not None:
        raise UserError(f"'{name}' is one argument too many", hint="show RUN ENTRY, or show RUN claim NAME")
    from sessions.commands.audit import verify_command as audit

    audit.show_entry(run, entry, json)


@audit_app.command("log")
def audit_log(run: Place, json: Json = False) -> None:
    """Tell the session as a story: every gate, who judged, what came out, what it cost."""
    from sessions.commands.audit import timeline_command as audit_story

    audit_story.log(run, json)


@audit_app.command("diff")
def audit_diff(
    run: Place,
    first: Annotated[str, typer.Argument(help="Entry number or key.")],
    second: Annotated[str, typer.Argument(help="Entry number or key.")],
    json: Json = False,
) -> None:
    """Compare two entries and what they point to: two attempts' checks, two verdicts, two plans."""
    from sessions.commands.audit import timeline_command as audit_story

    audit_story.diff(run, first, second, json)


@audit_app.command("export")
def audit_export(
    run: RunPath,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; it must not be there yet.")],
) -> None:
    """Write the trail as a folder that anyone can verify: C2SP tlog-tiles, proofs, evidence, and a page for people."""
    from sessions.commands.audit import timeline_command as audit_story

    audit_story.export(run, folder)


@audit_app.command("anchor")
def audit_anchor(
    run: Place,
    folder: Annotated[Path | None, typer.Option("--folder", help="A folder elsewhere: another disk or host.")] = None,
    git: Annotated[str | None, typer.Option("--git", help="A git remote; branch peergate-heads.")] = None,
    command: Annotated[str | None, typer.Option("--command", help="Gets the head on its standard input.")] = None,
) -> None:
    """Keep the newest signed head elsewhere, after comparing the trail with every head that is there already."""
    from sessions.commands.audit import anchors_command as anchors

    anchors.anchor(run, folder, git, command)


@audit_app.command("cosign")
def audit_cosign(
    run: Place,
    name: Annotated[str, typer.Option("--name", help="Name of the witness, for example ada.example.org.")],
    key: Annotated[Path, typer.Option("--key", help="Private ed25519 key in PEM; made when it is not there.")],
    out: Annotated[Path | None, typer.Option("--out", help="Write the note to this file, or add to it.")] = None,
    seen: Annotated[
        list[Path] | None, typer.Option("--seen", help="Head signed before; the trail must have grown from it.")
    ] = None,
) -> None:
    """Check a trail and sign its newest head as a witness or as a person."""
    from sessions.commands.audit import anchors_command as anchors

    anchors.cosign(run, name, key, out, seen or [])


@audit_app.command("rotate")
def audit_rotate(
    role: Annotated[Role, typer.Argument(help="Whose key to replace.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; recorded in every open trail.")],
    revoke: Annotated[bool, typer.Option("--revoke", help="The old key may be stolen.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who decides this; your user name by default.")] = None,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the run folders.")] = Path("runs"),
) -> None:
    """Replace the signing key of a role, and record that in every open trail of the workspace."""
    from sessions.commands.audit import anchors_command as anchors

    anchors.rotate_key(role, runs, by, reason, revoke)
