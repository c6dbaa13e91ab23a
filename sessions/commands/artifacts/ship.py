"""`peergate ship`: check a checkpoint folder, and release the model of an accepted session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sessions.commands.options import DEFAULT_RUNS, Json, RequiredRun, Runs, chosen
from sessions.commands.output import print_json, print_line, say
from sessions.run.disk_errors import telling_no_place
from sessions.run.private_files import as_the_user_wants
from sessions.run.run_layout import TRAIL
from specs.system.errors import ExitCode, UserError
from specs.system.text import one_line
from training.rules.packaging.bounded_json import WrongFile
from training.rules.packaging.flaw import Flaw, Layer
from training.rules.packaging.ship_rules import LayerOutcome, check_files

_LISTED = 12
"""Faults of one layer that are printed."""

app = typer.Typer(help="Check whether a model can be used, and release it.", no_args_is_help=True)
_PASSED: dict[Layer, str] = {
    "structure": "every file is there, and none can run code",
    "config": "it says all that its architecture needs",
    "weights": "names and shapes are those of its architecture, every number is finite",
    "tokenizer": "its tokens fit the weights",
    "template": "the chat template writes only tokens that the tokenizer has",
    "generation": "answers end at the tokenizer's end token",
    "training": "every loss in the training log is a number",
    "lineage": "it descends from the base",
    "digests": "every file is the recorded one",
    "gguf": "the export holds these weights and this tokenizer",
    "reload": "two fresh processes load it and answer alike",
}
"""What a layer has shown that passes; that of the throughput says its rate."""


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A checkpoint folder, of any origin.")],
    base: Annotated[Path | None, typer.Option("--base", help="The checkpoint that it was trained from.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Id of the key that must have signed its list.")] = None,
    files_only: Annotated[bool, typer.Option("--files-only", help="Read files, load nothing.")] = False,
    floor: Annotated[
        float, typer.Option("--floor", min=0.0, help="The fewest tokens a second, on this machine.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Check a checkpoint layer by layer: files, config, weights, tokenizer, template, lineage, digests, reload.

    No pickle and no code of the folder is loaded. Exit codes: 0 every layer that applies passes, 2 DIR or --base is not
    a folder, 3 a layer fails, 4 a layer that applies could not be run.
    """
    for path in (folder, *([base] if base is not None else [])):
        if not path.is_dir():
            raise UserError("is not a folder", where=str(path))
        if (path / TRAIL).is_file():
            take = f"`peergate get model {path.resolve().name} FOLDER` copies its model"
            raise UserError("is the run folder of a session, not a checkpoint", where=str(path), hint=take)
    outcomes, signed_by = _outcomes(folder, base, key)
    if not files_only:
        outcomes += _run_reload_checks(folder, floor, whole=all(outcome.status != "FAIL" for outcome in outcomes))
    failed = any(outcome.status == "FAIL" for outcome in outcomes)
    blocked = any(outcome.status == "NOT_RUN" and outcome.applies for outcome in outcomes)
    if as_json:
        layers = [outcome._asdict() | {"flaws": [flaw._asdict() for flaw in outcome.flaws]} for outcome in outcomes]
        print_json({"folder": str(folder), "passed": not failed, "signed_by": signed_by, "layers": layers})
    else:
        _print(outcomes, signed_by)
        print_line(f"{folder}: {_in_words(outcomes)}")
    raise typer.Exit(int(ExitCode.REJECTED if failed else ExitCode.BLOCKED if blocked else ExitCode.DONE))


def _outcomes(folder: Path, base: Path | None, key: str | None) -> tuple[list[LayerOutcome], str]:
    """Return what the files show, and the id of the key that signed their list."""
    from sessions.exports.shipping.release import RELEASE, read_release
    from specs.system.digests import digest_file

    wrong: list[Flaw] = []
    listed: dict[str, str] | None = None
    signed_by = ""
    again = "get the release again from who made it"
    try:
        release = read_release(folder)
    except WrongFile as error:
        release = None
        wrong.append(Flaw("digests", "signature", RELEASE, error.why, again))
    if release is not None:
        listed, signed_by = release.files | {RELEASE: digest_file(folder / RELEASE)}, release.key_id
        if key is not None and release.key_id != key:
            why = f"is signed by the key {release.key_id}, not by {one_line(key, 80)}"
            wrong.append(Flaw("digests", "other_key", RELEASE, why, again))
    elif key is not None and not wrong:
        wrong.append(Flaw("digests", "unsigned", RELEASE, "is missing: nothing is signed", again))
    outcomes = list(check_files(folder, base, listed))
    if wrong:
        at = next(number for number, outcome in enumerate(outcomes) if outcome.layer == "digests")
        outcomes[at] = LayerOutcome("digests", "FAIL", (*wrong, *outcomes[at].flaws))
    return outcomes, signed_by


def _run_reload_checks(folder: Path, floor: float, *, whole: bool) -> list[LayerOutcome]:
    if not whole:
        why = "its files are not whole"
        return [LayerOutcome("reload", "NOT_RUN", why=why), LayerOutcome("throughput", "NOT_RUN", why=why)]
    from sessions.exports.shipping.reload_check import check_reload

    say("loading it in two fresh processes")
    return list(check_reload(folder, floor))


def _in_words(outcomes: list[LayerOutcome]) -> str:
    """Return what follows from all layers."""
    wrong, unknown, unseen = (
        ", ".join(dict.fromkeys(outcome.layer for outcome in outcomes if (outcome.status, outcome.applies) in states))
        for states in ([("FAIL", True), ("FAIL", False)], [("NOT_RUN", True)], [("NOT_RUN", False)])
    )
    if wrong:
        return f"do not use it before this is fixed: {wrong}"
    left_out = f"; not looked at: {unseen}" if unseen else ""
    if unknown:
        return f"unknown whether it can be used, these could not be compared: {unknown}{left_out}"
    return f"no fault was found{left_out}"


def _print(outcomes: list[LayerOutcome], signed_by: str) -> None:
    for outcome in outcomes:
        why = outcome.why or (_PASSED.get(outcome.layer, "") if outcome.status == "PASS" else "")
        print_line(f"{outcome.status:8} {outcome.layer}{f': {why}' if why else ''}")
        for flaw in outcome.flaws[:_LISTED]:
            print_line(f"         {flaw.file}: {flaw.description}")
            print_line(f"           {flaw.fix}")
        if len(outcome.flaws) > _LISTED:
            print_line(f"         and {len(outcome.flaws) - _LISTED} more (--json lists all)")
    if signed_by:
        print_line(f"signed by {signed_by}: compare this id with an id that you know")


@app.command("push")
def push(
    run: RequiredRun,
    to: Annotated[str, typer.Argument(metavar="DEST", help="A folder to create, or hub:OWNER/NAME.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Create and check it, but only list what would be sent.")
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="Create a public repository; private by default.")] = False,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Release the model of an accepted session: weights, exports, model card, evidence, sums and a signed list.

    For the Hub the token is taken from HF_TOKEN. Exit codes: 0 released, 2 no such session, it is not accepted, DEST
    exists or no token; 3 its files are incomplete; 4 it left no model; 5 trail or weights differ from the record.
    """
    from sessions.exports.shipping.push import EVIDENCE, release_run

    path = chosen(run, runs)
    with as_the_user_wants(), telling_no_place(Path(to) if not to.startswith("hub:") else Path.cwd()):
        done = release_run(path, to, say, dry_run=dry_run, public=public)
    if done.flaws:
        for flaw in done.flaws:
            print_line(flaw.line())
        raise typer.Exit(int(ExitCode.REJECTED))
    if as_json:
        facts: dict[str, Any] = {"to": to, "sent": not dry_run, "key": done.key_id, "files": done.files}
        print_json(facts)
        return
    evidence = [name for name in done.files if name.startswith(f"{EVIDENCE}/")]
    for name in sorted(done.files.keys() - set(evidence)):
        print_line(f"{done.files[name]}  {name}")
    print_line(f"and {len(evidence)} files under {EVIDENCE}: SHA256SUMS lists all")
    print_line(f"{to}: {len(done.files)} files{', nothing was sent' if dry_run else ''}, signed by {done.key_id}")
