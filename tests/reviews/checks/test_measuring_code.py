"""The code that measures is registered with the spec: a change of it on the way closes the gate, the audit sees it."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.event_order import code_damage
from reviews.audit.verify import verify_run
from reviews.checks import measuring_code, registration_checks
from reviews.evidence.gather import gather
from reviews.gate.check_list import CHECKS
from reviews.gate.design_checks import DESIGN_CHECKS
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.overview import overview
from sessions.runtime.human_actions import amend
from testing.factories.evidence_on_disk import evidence_of
from testing.fixtures.quick_session import Silent, drive, open_quick, quick_session

CHANGED = "training/rules/cleaning.py"
REST = measuring_code._own_code()  # pyright: ignore[reportPrivateUsage]


def other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the process measure with another version of one file."""
    monkeypatch.setattr(measuring_code, "_own_code", lambda: REST | {CHANGED: "sha256:" + "1" * 64})


def checked(run: Path, stage: str) -> dict[str, Any]:
    key = f"checks/{stage}.1"
    entry = next(recorded_entry for recorded_entry in read_entries(run / "trail.sqlite") if recorded_entry.key == key)
    results = Store(run / "store").get_value(entry.raw["checks"])
    return next(result for result in results if result["id"] == "registration.code")


def damage(run: Path) -> list[str]:
    return verify_run(run, "trail.sqlite", "store").damage


@pytest.fixture
def changed_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a session whose second gate was judged by other code than its first."""
    run = open_quick(tmp_path)
    session = quick_session(run)

    def at_the_second(*_: Any) -> None:
        if any(entry.key == "decision/base.1" for entry in session.trail.iterate("decision")):
            other_code(monkeypatch)

    launcher: Any = session.launcher
    before = launcher.start

    def start(folder: Path) -> None:
        at_the_second()
        before(folder)

    launcher.start = start
    drive(session)
    return run


def test_failure_18_a_metric_that_is_changed_on_the_way_closes_the_gate(changed_on_the_way: Path) -> None:
    run = changed_on_the_way
    assert (checked(run, "base")["status"], checked(run, "sample")["status"]) == ("PASS", "FAIL")
    # It says which file it was, and a person is asked: the evidence is there, and no one may judge it by this code.
    assert [row["file"] for row in checked(run, "sample")["rows"]] == [CHANGED]
    assert overview(run).state == "waiting" and any("registration.code" in reason for reason in overview(run).reasons)
    assert damage(run) == []


def test_an_amendment_puts_the_change_before_the_reviewer_and_makes_the_result_exploratory(
    changed_on_the_way: Path,
) -> None:
    run = changed_on_the_way
    display: Any = Silent()
    recorded = amend(run, run.parents[1] / "spec.yaml", "ada", "a fault in the cleaning was mended", False, display)
    (change,) = recorded.raw["changes"]
    assert (change["pointer"], change["after"]) == ("/measuring_code", measuring_code.measuring_code())
    assert recorded.raw["outcome"] == "approve" and recorded.raw["exploratory"]
    drive(quick_session(run), {"answer": "retry", "reason": "amended", "by": "ada", "expires": None})
    entries = read_entries(run / "trail.sqlite")
    again = gather(run, History(entries, Store(run / "store")), "sample", 2)
    assert registration_checks._check_code(again, None).status == "PASS"  # pyright: ignore[reportPrivateUsage]
    assert overview(run).state == "closed" and damage(run) == []


def with_body(entry: RecordedEntry, body: dict[str, Any]) -> RecordedEntry:
    return replace(entry, entry=entry.entry.model_copy(update={"body": body}))


def forged(entries: list[RecordedEntry], change: Callable[[dict[str, Any]], None]) -> list[RecordedEntry]:
    """Return entries in which each decision has another body."""
    recorded_entries: list[RecordedEntry] = []
    for entry in entries:
        body = dict(entry.raw)
        if entry.kind == "decision" and body["stage"] is not None:
            change(body)
        recorded_entries.append(with_body(entry, body))
    return recorded_entries


def test_the_audit_sees_an_approval_by_code_that_no_one_registered(closed_quick: Path) -> None:
    entries = read_entries(closed_quick / "trail.sqlite")
    assert overview(closed_quick).state == "closed" and [*code_damage(History(entries))] == []
    other = forged(entries, lambda body: body.update(code="sha256:" + "2" * 64))
    assert len([*code_damage(History(other))]) == sum(entry.key.startswith("decision/") for entry in entries) - 1
    assert "approves by the measuring code sha256:222" in next(code_damage(History(other)))
    assert [*code_damage(History(forged(other, lambda body: body.update(outcome="escalate"))))] == [], (
        "it opens nothing"
    )


def test_a_trail_that_does_not_state_its_code_is_not_judged_by_it(tmp_path: Path) -> None:
    outcome = registration_checks._check_code(evidence_of(tmp_path, "base"), None)  # pyright: ignore[reportPrivateUsage]
    assert outcome.status == "NOT_APPLICABLE"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A tree with a root, what it reaches, and what it does not."""
    files = {
        "reviews/__init__.py": "",
        "reviews/root.py": "from reviews import near\nimport json\nfrom training.rules import far\n",
        "reviews/near.py": "def late():\n    if late:\n        from specs import deep\n        return deep\n",
        "reviews/other.py": "import reviews.root\n",
        "training/__init__.py": "",
        "training/rules/__init__.py": "",
        "training/rules/far.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import specs.only_types\n",
        "specs/__init__.py": "",
        "specs/deep.py": "try:\n    from .beside import name\nexcept ImportError:\n    pass\n",
        "specs/beside.py": "name = 1\n",
        "specs/only_types.py": "",
        "specs/added.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def reached(home: Path) -> set[str]:
    return {path.relative_to(home).as_posix() for path in measuring_code.import_closure(home, ["reviews.root"])}


def test_what_imports_reach_is_measuring_code_also_when_a_function_imports_it(home: Path) -> None:
    named = {"reviews/root.py", "reviews/near.py", "training/rules/far.py", "specs/deep.py", "specs/beside.py"}
    assert reached(home) == named


def test_a_package_counts_when_its_file_holds_code(home: Path) -> None:
    before = reached(home)
    (home / "specs" / "__init__.py").write_text('"""Contracts."""\n', encoding="utf-8")
    assert reached(home) == before
    (home / "specs" / "__init__.py").write_text('"""Contracts."""\n\nimport specs.added\n', encoding="utf-8")
    assert reached(home) - before == {"specs/__init__.py", "specs/added.py"}


def test_an_import_that_is_added_anywhere_below_adds_its_file(home: Path) -> None:
    before = reached(home)
    (home / "specs" / "beside.py").write_text("def name():\n    import specs.added\n", encoding="utf-8")
    assert reached(home) - before == {"specs/added.py"}


@pytest.mark.parametrize(
    ("line", "imports"),
    [
        ("import specs.added as added", True),
        ("from specs import (  # why\n    added as name,\n)", True),
        ("from . import added", True),
        ("if True:\n    if TYPE_CHECKING:\n        pass\n    import specs.added", True),
        ("if typing.TYPE_CHECKING:\n    import specs.added", False),
        ("if TYPE_CHECKING:\n    if True:\n        pass\n    import specs.added", False),
        ("# import specs.added", False),
    ],
)
def test_an_import_counts_in_each_form_that_the_formatter_writes(home: Path, line: str, imports: bool) -> None:
    (home / "specs" / "beside.py").write_text(f"{line}\n", encoding="utf-8")
    assert ("specs/added.py" in reached(home)) == imports


def test_the_text_of_each_file_names_the_imports_that_its_syntax_tree_has() -> None:
    """The closure is read from text for speed: what a syntax tree of each file names must be among it."""
    files = [path for package in measuring_code.PACKAGES for path in (measuring_code.HOME / package).rglob("*.py")]
    for path in files:
        source = path.read_text(encoding="utf-8")
        read = set(measuring_code._iterate_imports(source, "specs.stages"))  # pyright: ignore[reportPrivateUsage]
        assert set(parsed_imports(ast.parse(source))) <= read, path
    assert len(files) > 400


def parsed_imports(tree: ast.Module) -> Iterator[str]:
    """Yield the names that statements import, those only for types left out."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            pending += ast.iter_child_nodes(node)


def test_a_root_that_is_not_there_is_an_error_and_not_a_smaller_digest(home: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"'reviews\.gone' is registered as measuring code"):
        measuring_code.import_closure(home, ["reviews.root", "reviews.gone"])


def test_the_digest_changes_with_a_file_that_only_an_import_names(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_code, "HOME", home)
    monkeypatch.setattr(measuring_code, "ROOTS", ("reviews.root",))
    digests: list[str] = []
    for name, text in (("", ""), ("specs/added.py", "x = 1\n"), ("specs/beside.py", "import specs.added\n")):
        if name:
            (home / name).write_text(text, encoding="utf-8")
        measuring_code._own_code.cache_clear()  # pyright: ignore[reportPrivateUsage]
        digests.append(measuring_code.measuring_code())
    measuring_code._own_code.cache_clear()  # pyright: ignore[reportPrivateUsage]
    assert digests[0] == digests[1] != digests[2], "no one imports it; then someone does"


@pytest.mark.parametrize(
    "name",
    [
        *measuring_code.ROOTS,
        "training.rules.finetuning.losses",
        "training.rules.seeded_order",
        "specs.jobs.job_records",
    ],
)
def test_what_judges_is_in_the_digest(name: str) -> None:
    stem = name.replace(".", "/")
    assert f"{stem}.py" in REST or f"{stem}/__init__.py" in REST


@pytest.mark.parametrize("name", sorted({check.run.__module__ for check in (*CHECKS, *DESIGN_CHECKS)}))
def test_each_file_with_checks_is_in_the_digest(name: str) -> None:
    """A root that names a package with an empty ``__init__.py`` would leave them out without an error."""
    assert f"{name.replace('.', '/')}.py" in REST


def test_what_no_judge_reaches_is_not_in_the_digest() -> None:
    assert not {"reviews/audit/verify.py", "reviews/audit/export.py", "training/jobs/finetuning/sft.py"} & set(REST)
    assert not any(name.startswith(("sessions/", "agents/", "tests/")) for name in REST)


OPERATIONAL = re.compile(
    r"specs/(notices|trainers|loading|lint)/|specs/session/(operations|session_spec)\.py|"
    r"specs/system/vendors/(?!parties\.py)|(^|/)(prices|pods?|launchers?|trackers?)(/|\.py)"
)
MOST_FILES = 250


def test_few_files_measure_and_none_of_them_operates_a_session() -> None:
    assert len(REST) <= MOST_FILES
    assert [name for name in REST if OPERATIONAL.search(name)] == []


def test_a_judge_that_imports_operations_is_found(home: Path) -> None:
    (home / "specs" / "session").mkdir()
    (home / "specs" / "notices").mkdir()
    (home / "specs" / "notices" / "notify.py").write_text("x = 1\n", encoding="utf-8")
    text = "from specs.notices import notify\n"
    (home / "specs" / "session" / "operations.py").write_text(text, encoding="utf-8")
    (home / "specs" / "beside.py").write_text("from specs.session import operations\n", encoding="utf-8")
    operational = {name for name in reached(home) if OPERATIONAL.search(name)}
    assert operational == {"specs/session/operations.py", "specs/notices/notify.py"}


@pytest.fixture
def own_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of Peergate's code, whose measuring code is digested in place of the one that runs."""
    for package in measuring_code.PACKAGES:
        shutil.copytree(measuring_code.HOME / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(measuring_code, "HOME", tmp_path)
    return tmp_path


def digest_now() -> str:
    measuring_code._own_code.cache_clear()  # pyright: ignore[reportPrivateUsage]
    try:
        return measuring_code.measuring_code()
    finally:
        measuring_code._own_code.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("file", "before", "after", "same"),
    [
        ("specs/notices/notify.py", "    env: ", "    webhook: str = ''\n    env: ", True),
        ("specs/session/thresholds.py", "from __future__", "LEAST = 0.1\nfrom __future__", False),
        pytest.param(
            *("specs/session/operations.py", "    notify: ", "    webhook: str = ''\n    notify: ", True),
            marks=pytest.mark.more,
        ),
        pytest.param(
            *("specs/session/design.py", "BUILDER_SHARE = 0.2", "BUILDER_SHARE = 0.3", False), marks=pytest.mark.more
        ),
    ],
)
def test_a_webhook_leaves_the_measuring_code_what_it_was_and_a_threshold_does_not(
    own_tree: Path, file: str, before: str, after: str, same: bool
) -> None:
    digest, path = digest_now(), own_tree / file
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    assert (digest_now() == digest) is same


def test_every_data_file_that_reached_code_reads_is_declared() -> None:
    """A closure sees no data: anyone who reads a file next to its module adds it to ``DATA``, or says here why not."""
    judges_nothing = {
        "reviews/checks/measuring_code.py": "reads code",
        "specs/system/confinement/bubblewrap.py": "mounts code",
        "specs/system/confinement/task_file.py": "names a missing __file__ in an error",
        "specs/system/confinement/program_process.py": "mounts code that it imports",
        "specs/system/confinement/verifier_command.py": "mounts code",
        "specs/system/home.py": "says where Peergate lies",
        "specs/stages/recipes/script_file.py": "refuses a folder of packages that holds Peergate",
        "specs/system/plugins.py": "asks whether a line of an error is Peergate's",
        "specs/trainers/trainer_file.py": "the runner of a training file: registered scripts hold its text",
        "specs/loading/loading.py": "shipped specs: what they say is registered with each session",
    }
    at_home = re.compile(r"__file__|import.*\bHOME\b")
    readers = {
        name for name in REST if name.endswith(".py") and at_home.search((measuring_code.HOME / name).read_text())
    }
    assert readers - set(judges_nothing) == {"training/rules/rubric_prompts.py"}
    assert [name for name in REST if name.startswith("training/rules/prompts/")], "what that one reads"


def test_what_answers_a_reviewers_calls_is_measuring_code() -> None:
    """The audit carries out again what reviewers looked up, if the code is the one that answered."""
    closure = measuring_code.import_closure(measuring_code.HOME, measuring_code.ROOTS)
    reached = {path.relative_to(measuring_code.HOME).as_posix() for path in closure}
    assert {"reviews/evidence/readable_evidence.py", "reviews/evidence/row_queries.py"} <= reached
