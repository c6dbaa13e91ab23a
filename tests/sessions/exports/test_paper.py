"""`peergate export paper`: every number is a claim of the trail, and what strangers wrote stays text."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from reviews.gate.check_catalog import listing
from reviews.history.history import History
from reviews.trail.tables.open_table import read_entries
from sessions.exports.paper.claims import CitedSession, ClaimList, value_at
from sessions.exports.paper.contents import UNFINISHED, PaperSession, sections_of, title_of
from sessions.exports.paper.document import Table, csv_table, escape_latex, latex_of, latex_table, markdown_of
from sessions.exports.paper.objections import OBJECTIONS
from sessions.exports.paper.references import REFERENCES, bibliography, used_parts
from sessions.exports.paper.reproduction import write_reproduction
from sessions.pages.report.report import report_so_far
from sessions.pages.report.trail_page import trail_page
from sessions.run.run_layout import STORE, TRAIL
from sessions.runtime import registration
from specs.loading.loading import find_spec, load_spec
from specs.session.session_spec import ResolvedSpec
from specs.system import markdown
from specs.system.digests import digest_file
from testing.factories.spec_files import write_spec
from testing.fixtures.command_sessions import called
from testing.fixtures.hostile_trail import plant, small_trail
from testing.fixtures.quick_session import QuickLauncher, code_now, drive, open_quick, quick_session, rows_with
from tests.sessions.report.test_more_arms import arm_has, run_session
from tests.sessions.report.test_report_page import CURVE
from tests.sessions.report.test_seeds import seed_of

HOSTILE = " \\input{/etc/passwd} \\end{document} $x_1^2$ & % # [a](javascript:x) <b>*y*</b> | `z` 中 \u202e =cmd()"
CONSTANT = "95 %"
CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")


def exported(tmp_path: Path, *runs: Path) -> Path:
    done = called("export", "paper", *runs, "--out", tmp_path / "paper")
    assert done.returncode == 0, done.stderr
    return tmp_path / "paper"


def claims_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "claims.json").read_text(encoding="utf-8"))["claims"]


def unclaimed(text: str, claims: dict[str, Any]) -> list[str]:
    """Return the words with a digit that are no claim, no name and no key of a reference."""
    text = text.partition("\n[^c1]: ")[0]
    for claim in claims.values():
        text = text.replace(f"{markdown.line(claim['text'])}[^{claim['id']}]", "")
    text = re.sub(r"\[@\w+\]|!\[.*?\]\(.*?\)", "", CODE.sub("", text)).replace(CONSTANT, "")
    return re.findall(r"\S*\d\S*", text)


def wrong_claims(claims: dict[str, Any], run: Path, paper: Path) -> list[str]:
    """Return the claims whose source does not hold their value."""
    report = paper / "reports" / f"{run.name}.json"
    reports = {digest_file(report): json.loads(report.read_bytes())}
    return claims_without_source(claims, History.read(run / "trail.sqlite", run / "store"), reports)


def claims_without_source(
    claims: dict[str, Any], history: History, reports: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """Return the claims whose value is neither in their entry, nor in a report or stored value that it names."""
    wrong: list[str] = []
    for claim in claims.values():
        (source,) = claim["sources"]
        entry = history[source["entry"]]
        data: Any = entry.raw
        if source["evidence"]:
            data = reports.get(source["evidence"]) or history.store.get_value(source["evidence"])
        same = (entry.key, entry.digest) == (source["key"], source["entry_digest"])
        named = not source["evidence"] or source["evidence"] in json.dumps(entry.raw)
        if not (same and named and value_at(data, source["pointer"]) == claim["value"]):
            wrong.append(claim["id"])
    return wrong


def unbalanced(text: str) -> str:
    """Return the first environment or brace of a LaTeX file that does not match; empty if all do."""
    text = re.sub(r"\\[\\{}$&#_%]", "", text)
    depth, opened = 0, list[str]()
    for match in re.finditer(r"[{}]|\\(begin|end)\{(\w+\*?)\}", text):
        if match[1] == "begin":
            opened.append(match[2])
        elif match[1] == "end":
            if not opened or opened.pop() != match[2]:
                return match[0]
        else:
            depth += 1 if match[0] == "{" else -1
            if depth < 0:
                return match[0]
    return "".join(opened) or "{" * depth


def test_every_number_is_a_claim_and_is_what_the_trail_says(run: Path, tmp_path: Path) -> None:
    paper = exported(tmp_path, run)
    claims, text = claims_of(paper), (paper / "paper.md").read_text(encoding="utf-8")
    assert len(claims) > 100 and unclaimed(text, claims) == [] and wrong_claims(claims, run, paper) == []
    gain = next(claim for claim in claims.values() if claim["what"] == "tuned.1.accuracy_gain")
    assert gain["value"] == 1.0 and f"| `accuracy_gain` | 1[^{gain['id']}] |" in text
    assert all(f"\n[^{name}]: `small`, entry " in text for name in claims)
    # A number that no one claims, and a claim that the trail does not hold, are noticed.
    assert unclaimed(f"The gain is 0.5. {text}", claims) == ["0.5."]
    assert wrong_claims(claims | {gain["id"]: gain | {"value": 0.9}}, run, paper) == [gain["id"]]


def test_a_referee_gets_from_a_number_to_its_rows_in_two_commands(run: Path, tmp_path: Path) -> None:
    claims = claims_of(exported(tmp_path, run))
    verified = called("audit", "verify", run)
    assert verified.returncode == 0 and "VERIFIED" in verified.stdout
    for command in {claim["find"] for claim in claims.values()}:
        done = called(*command.split()[1:], cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr)
    gain = next(claim for claim in claims.values() if claim["what"] == "tuned.1.accuracy_gain")
    # The author hands over an export of the trail; the second command takes it in place of the session.
    assert called("audit", "export", run, tmp_path / "evidence").returncode == 0
    words = [str(tmp_path / "evidence") if word == gain["find"].split()[3] else word for word in gain["find"].split()]
    done = called(*words[1:])
    (source,) = gain["sources"]
    assert done.returncode == 0 and f"metric set {source['evidence']}" in done.stdout
    assert f"measured in entry {source['entry']} " in done.stdout and "computed again: 1" in done.stdout


def test_tables_and_references_are_files(run: Path, tmp_path: Path) -> None:
    paper = exported(tmp_path, run)
    text, tex = ((paper / f"paper.{form}").read_text(encoding="utf-8") for form in ("md", "tex"))
    names = {path.stem for path in (paper / "tables").iterdir()}
    assert {f"tables/{name}.tex" for name in names} == set(re.findall(r"\\input\{(.*?)\}", tex))
    with (paper / "tables" / "comparison-small.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    p = claims_of(paper)[rows["mcnemar_p"]["claims"].split()[0]]
    assert float(rows["mcnemar_p"]["value"]) == p["value"] != float(p["text"])
    keys = set(re.findall(r"^@\w+\{(\w+),$", (paper / "references.bib").read_text(encoding="utf-8"), re.MULTILINE))
    assert keys == set(re.findall(r"\[@(\w+)\]", text)) == set(re.findall(r"\\cite\{(\w+)\}", tex))
    # Neither a constitution that was read, nor DPO, nor TRL: the jobs of this session state torch alone.
    assert keys == {"mcnemar1947", "bonett2012", "wilson1927", "cohen1988", "smollm2", "paszke2019pytorch"}
    assert "| Other abilities were lost. | open | no check of it ran |" in text
    assert "| The arms were not evaluated alike. | answered | `parity.items`" in text


@pytest.mark.drawn
def test_figures_are_those_of_the_report_and_pdf(run: Path, tmp_path: Path) -> None:
    paper = exported(tmp_path, run)
    folder = paper / "figures" / "small"
    assert {path.name for path in folder.iterdir()} >= {"effect.svg", "effect.pdf", "loss.pdf", "training-train.pdf"}
    assert all(path.read_bytes().startswith(b"%PDF-") for path in folder.glob("*.pdf"))
    assert "![effect of small](figures/small/effect.svg)" in (paper / "paper.md").read_text(encoding="utf-8")
    assert "{figures/small/effect.pdf}" in (paper / "paper.tex").read_text(encoding="utf-8")


def test_the_latex_is_balanced_and_compiles(run: Path, tmp_path: Path) -> None:
    paper = exported(tmp_path, run)
    for path in (paper / "paper.tex", *(paper / "tables").glob("*.tex")):
        assert unbalanced(path.read_text(encoding="utf-8")) == "", path.name
    assert unbalanced(r"\begin{itemize} \item \{ \end{table}") == r"\end{table}" and unbalanced("{{}") == "{"
    if latex := shutil.which("pdflatex"):
        command = [latex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
        done = subprocess.run(command, cwd=paper, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("target", ["trail", "rows", "report"])
def test_of_a_tampered_run_nothing_is_written(run: Path, tmp_path: Path, target: str) -> None:
    if target == "trail":
        path = run / "trail.sqlite"
        path.write_bytes(path.read_bytes().replace(b'"outcome":"approve"', b'"outcome":"approvE"', 1))
    elif target == "report":
        path = run / "report" / "report.json"
        path.write_text(path.read_text(encoding="utf-8").replace("12 gained", "11 gained"), encoding="utf-8")
    else:
        entries = read_entries(run / "trail.sqlite")
        digest = next(entry.raw["outputs"]["rows"]["digest"] for entry in entries if entry.key == "exit/small.base.1")
        path = run / "store" / digest[7:9] / digest[9:]
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data.replace(b'"truncated": false', b'"truncated": true ', 1))
    done = called("export", "paper", run, "--out", tmp_path / "paper")
    assert done.returncode == 5 and not [*tmp_path.glob("paper*"), *tmp_path.glob(".paper*")], done.stderr
    assert ("does not verify" in done.stderr) or ("damaged" in done.stderr)


def test_what_cannot_be_written_says_why_and_leaves_nothing(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "paper"
    for arguments, why in (
        (("inspect", run, run), "'inspect' takes one session, got 2"),
        (("mlflow", run, run, "--send"), "--send takes one session"),
        (("paper", run, run), "duplicate session 'small'"),
        (("paper", tmp_path / "none"), "session"),
    ):
        done = called("export", *arguments, *(() if "--send" in arguments else ("--out", out)))
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
        assert not [*tmp_path.glob("paper*"), *tmp_path.glob(".paper*")]


def test_an_open_session_and_a_null_say_so(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    paper = exported(tmp_path / "open", run)
    text = (paper / "paper.md").read_text(encoding="utf-8")
    assert f"`small`: {UNFINISHED}" in text and "every gate approved" not in text.lower()
    assert unclaimed(text, claims_of(paper)) == []
    drive(quick_session(run, launcher=QuickLauncher(rows=rows_with(1))))
    paper = exported(tmp_path / "null", run)
    text = (paper / "paper.md").read_text(encoding="utf-8")
    assert "`small`: This is a null result: the registered difference was not shown." in text
    assert unclaimed(text, claims_of(paper)) == [] and wrong_claims(claims_of(paper), run, paper) == []


def test_what_a_person_decided_stands_among_the_limits(tmp_path: Path) -> None:
    run = open_quick(tmp_path, ("{metric: accepted, at_least: 2}", "{metric: accepted, at_least: 200}"))
    drive(quick_session(run))
    answer = {"answer": "approve", "reason": f"enough{HOSTILE}", "by": "ada", "expires": None}
    drive(quick_session(run), answer)
    paper = exported(tmp_path, run)
    text, tex = ((paper / f"paper.{form}").read_text(encoding="utf-8") for form in ("md", "tex"))
    assert "a person decided instead" in text and "Gates or checks that a person lifted: 1[^" in text
    assert "- answered 'approve' at sample.1[^" in text and "`ada`: enough" in text and "passwd" in tex
    assert r"\input{/etc" not in tex and tex.count(r"\end{document}") == 1 and unbalanced(tex) == ""
    assert unclaimed(text, claims_of(paper)) == [] and wrong_claims(claims_of(paper), run, paper) == []


def test_every_arm_has_its_row_and_answers_an_objection(tmp_path: Path) -> None:
    run, _ = run_session(tmp_path / "arms", arm_has(2))
    paper = exported(tmp_path, run)
    claims, text = claims_of(paper), (paper / "paper.md").read_text(encoding="utf-8")
    assert unclaimed(text, claims) == [] and wrong_claims(claims, run, paper) == []
    (row,) = (line for line in text.splitlines() if line.startswith("| `own drafts` |"))
    plain = re.sub(r"\[\^c\d+\]", "", row)
    assert plain.startswith("| `own drafts` | 2 of 12 | 0.1667 [") and plain.endswith("| yes, beaten |")
    assert "| Another treatment does as well. | answered | `arms.alike`" in text and "[@holm1979]" in text


def test_a_learning_curve_is_in_page_and_paper_point_by_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curve = {"detail": "15000 examples: accuracy 0.500, a forecast", "points": CURVE}

    def list_curve(_: History) -> dict[str, Any]:
        return curve

    monkeypatch.setattr("sessions.pages.comparison._list_curve", list_curve)
    (tmp_path / "curved").mkdir()
    run = open_quick(tmp_path / "curved")
    drive(quick_session(run))
    page = trail_page(History.read(run / TRAIL, run / STORE))
    assert "<td>forecast</td><td>15000</td><td>0.500</td><td>0.400 to 0.600</td><td>0.500</td>" in page
    assert f'<p class="quiet">{curve["detail"]} (paired bootstrap' in page
    paper = exported(tmp_path, run)
    claims, text = claims_of(paper), (paper / "paper.md").read_text(encoding="utf-8")
    assert unclaimed(text, claims) == [] and wrong_claims(claims, run, paper) == []
    assert "Learning curve: 15000 examples" in text
    (row,) = (re.sub(r"\[\^c\d+\]", "", line) for line in text.splitlines() if line.startswith("| `a third` |"))
    assert row == "| `a third` | 333 | 0.5 | 0.4 to 0.6 | 0.5 |"


def test_seeds_are_one_paper_with_their_comparison(tmp_path: Path) -> None:
    runs: list[Path] = []
    for seed, right in ((7, 12), (8, 10)):
        folder = tmp_path / f"seed{seed}"
        folder.mkdir()
        runs.append(open_quick(folder, *seed_of(seed), name=f"seed{seed}"))
        drive(quick_session(runs[-1], launcher=QuickLauncher(rows=rows_with(right))))
    paper = exported(tmp_path, *runs)
    claims, text = claims_of(paper), (paper / "paper.md").read_text(encoding="utf-8")
    assert unclaimed(text, claims) == [] and "owen2007" in text
    assert "| Another seed gives another result. | answered | it holds over seeds |" in text
    over = next(claim for claim in claims.values() if claim["what"] == "gain over seeds")
    # By hand: gains of 12 and 10 of 12 items.
    assert over["value"] == pytest.approx((1 + 10 / 12) / 2)
    assert [source["session"] for source in over["sources"]] == ["seed7", "seed8"]
    gains = [History.read(run / "trail.sqlite", run / "store") for run in runs]
    for source, history in zip(over["sources"], gains, strict=True):
        assert history[source["entry"]].digest == source["entry_digest"]
        assert source["pointer"] == "/metrics/accuracy_gain/value"
    single = {name: claim for name, claim in claims.items() if len(claim["sources"]) == 1}
    for run in runs:
        own = {name: claim for name, claim in single.items() if claim["sources"][0]["session"] == run.name}
        assert wrong_claims(own, run, paper) == []
    assert {path.name for path in (paper / "reproduction").iterdir()} == {"seed7", "seed8"}
    unfinished = open_quick(tmp_path, name="open")
    done = called("export", "paper", runs[0], unfinished, "--out", tmp_path / "other")
    assert done.returncode == 4 and "did not reach its comparison" in done.stderr
    assert not (tmp_path / "other").exists()


def test_what_strangers_wrote_is_text(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    run = plant(small_trail(tmp_path / "own"), tmp_path / "planted", HOSTILE)
    history, claims = History.read(run / "trail.sqlite", run / "store"), ClaimList()
    report = report_so_far(run, history)
    session = PaperSession(CitedSession(history, report, f"sha256:{'0' * 64}", claims, run), run, ())
    sections = sections_of([session], used_parts([history], [report], over_seeds=False))
    listed = list(claims)
    assert sum("passwd" in claim.text for claim in listed) > 5
    text = markdown_of(title_of([session]), sections, listed)
    tables = [block for section in sections for block in section.blocks if isinstance(block, Table)]
    tex = latex_of(title_of([session]), sections, listed) + "".join(map(latex_table, tables))
    assert r"\input{/etc" not in tex and tex.count(r"\end{document}") == 1 and unbalanced(tex) == ""
    assert set(re.findall(r"\\input\{(.*?)\}", tex)) == {f"tables/{table.name}.tex" for table in tables}
    assert re.search(r"(?<!\\)[$^_%#]|[^\x00-\xff]", re.sub(r"#[12]|_\{", "", tex.replace("#1}{#1", ""))) is None
    prose = CODE.sub("", text)
    assert not re.search(r"(?<!\\)(\]\(|<b>|\*y)|\u202e", prose) and "passwd" in prose
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| ")]
    assert set(widths) <= {len(table.header) + 1 for table in tables}
    for table in tables:
        cells = [cell for row in csv.reader(csv_table(table).splitlines()) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "@"))]


def test_latex_typesets_every_character_as_itself() -> None:
    assert escape_latex(r"\a{b}") == r"\textbackslash{}a\{b\}"
    assert escape_latex("50 % of $x_1$ & ~#^") == r"50 \% of \$x\_1\$ \& \textasciitilde{}\#\textasciicircum{}"
    assert escape_latex("é 中\x07") == "é [U+4E2D][U+0007]"


def registered(folder: Path, resolved: ResolvedSpec, spec: Path) -> History:
    run = folder / "runs" / resolved.spec.name
    registration.register(run, resolved, registration.material_of(spec, resolved), code_now())
    return History.read(run / "trail.sqlite", run / "store")


@pytest.mark.parametrize("name", ["small", "cai_preferences", "self_instruct_sft"])
def test_the_package_is_the_registered_design(tmp_path: Path, name: str) -> None:
    path = write_spec(tmp_path) if name == "small" else find_spec(name)
    resolved = load_spec(path)
    history = registered(tmp_path, resolved, path)
    folder = tmp_path / "package"
    folder.mkdir()
    write_reproduction(folder, history, used_parts([], [], over_seeds=False))
    again = load_spec(folder / "spec.yaml")
    assert again.data_digests == resolved.data_digests and again.constitution_digest == resolved.constitution_digest
    assert again.spec.stages == resolved.spec.stages and again.spec.analysis == resolved.spec.analysis
    assert again.spec.thresholds == resolved.spec.thresholds and again.spec.evaluation == resolved.spec.evaluation


def test_a_task_file_and_converted_rows_are_in_the_package(tmp_path: Path) -> None:
    path = Path(__file__).parents[3] / "docs" / "examples" / "opposites" / "spec.yaml"
    resolved = load_spec(path)
    folder = tmp_path / "package"
    folder.mkdir()
    write_reproduction(folder, registered(tmp_path, resolved, path), used_parts([], [], over_seeds=False))
    again = load_spec(folder / "spec.yaml")
    assert again.task_text == resolved.task_text and again.data_digests == resolved.data_digests
    assert all(Path(file).resolve().is_relative_to(folder) for file in map(again.path, ("data", again.spec.task)))


def test_versions_of_jobs_cannot_add_lines(run: Path, tmp_path: Path) -> None:
    history = History.read(run / "trail.sqlite", run / "store")
    parts = used_parts([], [], over_seeds=False)._replace(
        packages={"torch": {"2.13.0"}, "evil\n--index-url=http://x": {"1"}, "x": {"1 --pre"}}
    )
    write_reproduction(tmp_path, history, parts)
    lines = (tmp_path / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith(("#", "peergate=="))] == ["torch==2.13.0"]


def test_a_secret_is_in_no_package(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_PASSWORD", "Write one line on elm.")
    done = called("export", "paper", run, "--out", tmp_path / "paper", env=os.environ)
    assert done.returncode == 2 and "data/heldout.jsonl: contains the value of SERVICE_PASSWORD" in done.stderr
    assert not [*tmp_path.glob("paper*"), *tmp_path.glob(".paper*")]


def test_checks_and_works_that_are_named_exist() -> None:
    known = {check.id for check in listing()}
    assert {check for objection in OBJECTIONS for check in objection.checks} <= known
    keys = [reference.key for reference in REFERENCES]
    assert len(keys) == len(set(keys)) and bibliography(set()) == ""
    text = bibliography(set(keys))
    assert unbalanced(text) == "" and all(f"{{{key}," in text for key in keys)


def _stage(kind: str, **parameters: Any) -> Any:
    from types import SimpleNamespace

    return SimpleNamespace(kind=kind, inputs={}, parameters=SimpleNamespace(**parameters))


@pytest.mark.parametrize(
    ("stage", "keys"),
    [
        (lambda: _stage("dpo", method="qlora"), {"rafailov2023dpo", "hu2022lora", "dettmers2023qlora"}),
        (lambda: _stage("self_instruct"), {"wang2023selfinstruct"}),
        (lambda: _stage("evaluate"), set[str]()),
    ],
)
def test_a_method_is_cited_where_a_stage_used_it(stage: Callable[[], Any], keys: set[str]) -> None:
    parts = used_parts([], [], over_seeds=False)._replace(stages=(stage(),))
    assert {reference.key for reference in REFERENCES if reference.is_used(parts)} == keys
