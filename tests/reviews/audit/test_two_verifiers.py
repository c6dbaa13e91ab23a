"""Peergate and ``verify/`` give one answer about an export: what both cover is in docs/explanation/trail.md."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from bench.attack import exports, forged_policies, forgeries
from bench.attack.exports import attack, build_verifier, go_codes, original, python_code
from bench.attack.forged_trail import Original, copy_trail, forge_trail, rewrite
from bench.attack.outcome import Outcome
from reviews.audit.export import verify_export


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return original(tmp_path_factory.mktemp("original"))


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None or not exports.PACKAGES.is_dir():
        pytest.skip("needs Debian's golang-go and golang-golang-x-mod-dev")
    return build_verifier(tmp_path_factory.mktemp("go"))


def answers(verifier: Path, folder: Path) -> tuple[int | str, int]:
    return python_code(folder), go_codes(verifier, [folder])[0]


@pytest.mark.parametrize(
    "attempts",
    [
        pytest.param(8, id="8"),
        pytest.param(25, id="25", marks=pytest.mark.slow),
        pytest.param(1000, id="1000", marks=[pytest.mark.nightly, pytest.mark.timeout(7200)]),
    ],
)
def test_both_verifiers_give_one_answer(whole: Original, verifier: Path, tmp_path: Path, attempts: int) -> None:
    outcome = Outcome()
    attack(outcome, whole, verifier, 7, attempts, tmp_path / "tried")
    assert outcome.attempts == attempts and not outcome.missed


def test_an_export_as_it_is_holds_for_both(whole: Original, verifier: Path, tmp_path: Path) -> None:
    """The control, also of the code that forges: signing everything again changes no answer."""
    assert answers(verifier, whole.folder) == (0, 0)
    again = forge_trail(whole, forgeries.control(whole, random.Random(1)).steps, tmp_path / "again")
    assert answers(verifier, again) == (0, 0)


@pytest.mark.parametrize(
    "maker",
    [
        *(forgeries.duplicate_names, forgeries.other_case, forgeries.other_spelling, forgeries.other_type),
        *(forgeries.other_members, forgeries.another_session, forgeries.time_backwards, forgeries.another_signer),
        *(forgeries.missing_evidence, forged_policies.another_envelope, forged_policies.changed_keys),
    ],
    ids=lambda item: item.__name__,
)
def test_a_forgery_with_keys_is_refused_by_both(
    whole: Original, verifier: Path, tmp_path: Path, maker: forgeries.Maker
) -> None:
    made = [forgery for forgery in (maker(whole, random.Random(seed)) for seed in range(4)) if forgery.harmful]
    folders = [
        forge_trail(whole, forgery.steps, tmp_path / str(n), policy=forgery.policy) for n, forgery in enumerate(made)
    ]
    assert folders and go_codes(verifier, folders) == [1] * len(folders), [forgery.what for forgery in made]
    assert [python_code(folder) for folder in folders] == [1] * len(folders), [forgery.what for forgery in made]


@pytest.mark.parametrize("name", ["store", "proofs", "keys", "policy.json", "log.vkey", "report.html", "tile/0"])
def test_what_is_gone_is_missed_by_both(whole: Original, verifier: Path, tmp_path: Path, name: str) -> None:
    path = copy_trail(whole, tmp_path / "out") / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert answers(verifier, tmp_path / "out") == (1, 1)


@pytest.mark.parametrize("name", ["more.txt", "proofs/000001-x.tlog-proof", "store/x", "keys/log-0.pem", "tile/0/001"])
def test_what_is_no_part_of_an_export_is_found_by_both(
    whole: Original, verifier: Path, tmp_path: Path, name: str
) -> None:
    rewrite(copy_trail(whole, tmp_path / "out") / name, b"x")
    assert answers(verifier, tmp_path / "out") == (1, 1)


def test_an_open_session_is_open_for_both(whole: Original, verifier: Path, tmp_path: Path) -> None:
    made = forgeries.cut(whole, random.Random(3))
    forge_trail(whole, made.steps, tmp_path / "out", size=made.size)
    assert answers(verifier, tmp_path / "out") == (2, 2)


def test_what_entries_mean_is_for_peergate_alone_and_both_say_so(
    whole: Original, verifier: Path, tmp_path: Path
) -> None:
    """A body without the form of its kind, signed by who may: the integrity holds, the audit as a whole does not."""
    steps = forgeries.steps_of(whole)
    number = next(entry.seq for entry in whole.entries if entry.kind == "spend")
    steps[number] = steps[number]._replace(entry=whole.entries[number].model_copy(update={"body": {"usd": "much"}}))
    forge_trail(whole, steps, tmp_path / "out")
    assert answers(verifier, tmp_path / "out") == (0, 0)
    audit = verify_export(tmp_path / "out")
    assert (audit.exit_code, audit.integrity) == (1, "holds") and "does not have its form" in audit.damage[0]


def test_a_difference_between_the_two_is_reported_as_missed(whole: Original, tmp_path: Path) -> None:
    """The control of the comparison: a verifier that accepts everything."""
    blind = tmp_path / "blind"
    blind.write_text('#!/bin/sh\nfor one in "$@"; do echo "0 $one: OK"; done\n', encoding="utf-8")
    blind.chmod(0o755)
    outcome = Outcome()
    attack(outcome, whole, blind, 7, 8, tmp_path / "tried", keep=tmp_path / "kept")
    assert len(outcome.missed) >= 4 and "verify/ says 0" in outcome.missed[0]
    assert len(list((tmp_path / "kept").iterdir())) == len(outcome.missed)
