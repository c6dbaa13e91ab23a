"""The sections of a paper: methods, results, limits, likely objections, and how to run it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from reviews.comparison.seed_comparison import compare_seed, newest_is_retraction, together
from sessions.exports.paper.claims import CitedSession, Claim
from sessions.exports.paper.document import (
    Block,
    Citation,
    Code,
    Figure,
    ItemList,
    Line,
    Paragraph,
    Part,
    Section,
    Table,
)
from sessions.exports.paper.objections import objection_table
from sessions.exports.paper.references import REFERENCES, UsedParts
from sessions.exports.paper.reproduction import command_of
from specs.stages.registry import kind_of
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import DecisionEntry
from specs.trail.session_bodies import CloseEntry, ModelEntry, ReplicationEntry

_PLAIN_OUTCOMES = {
    "approve": "Every gate approved: the registered difference was shown.",
    "null": "This is a null result: the registered difference was not shown.",
    "overridden": "Not every gate approved: a person decided instead, as said below.",
}
ANCHOR = "peergate audit verify --anchor"
UNFINISHED = "This session has not ended: nothing of it is final, and no gate has accepted its result."


class PaperSession(NamedTuple):
    """A session of the paper, with its folder and the plots that were drawn of it."""

    cited: CitedSession
    run: Path
    plots: tuple[str, ...]


def title_of(sessions: Sequence[PaperSession]) -> Line:
    """Return the title of the paper: the sessions it is about."""
    parts: list[Part] = []
    for session in sessions:
        parts += [", " if parts else "", Code(session.cited.name)]
    return parts


def sections_of(sessions: Sequence[PaperSession], parts: UsedParts) -> list[Section]:
    """Return the sections of a paper about a session, or about several of one design that differ in their seed.

    Raises:
        UserError: the designs of several sessions differ, or a seed is named twice.
        EvidenceMissing: one of several sessions did not come to its comparison.
    """
    seeds, holds = _seeds(sessions)
    several = len(sessions) > 1
    sections = [Section(("Summary",), [Paragraph(line) for session in sessions for line in _summary(session.cited)])]
    sections.append(Section(("Methods",), list(_methods(sessions[0].cited, parts))))
    sections.append(Section(("Results",), seeds))
    for session in sessions:
        sections.append(Section((Code(session.cited.name),), list(_results(session)), level=2))
    sections.append(Section(("Limits",), [ItemList(list(_limits(session.cited, several))) for session in sessions]))
    tables = [objection_table(session.cited, session.plots, holds) for session in sessions]
    sections.append(Section(("Likely objections",), tables))
    sections.append(Section(("Running it again",), list(_reproduction(sessions))))
    return sections


def _summary(session: CitedSession) -> Iterator[Line]:
    history = session.history
    closed = history.find(CloseEntry)
    if closed is None:
        yield Code(session.name), ": ", UNFINISHED
    elif newest_is_retraction(history):
        yield Code(session.name), ": a judgement of this session was taken back: its result does not stand."
    else:
        decision = closed.body.decision
        other = f"This session ended without a result: {decision}."
        yield Code(session.name), ": ", _PLAIN_OUTCOMES.get(decision, other)
    yield session.from_report("result"), "."


def _methods(session: CitedSession, parts: UsedParts) -> Iterator[Block]:
    history, spec = session.history, session.history.resolved.spec
    yield Paragraph(("Objective: ", session.from_spec("spec", "objective")))
    when = "amended since, and registered as " if history.newest_amendment else "registered before any data existed as "
    yield Paragraph(("The design is ", when, Code(history.registration), "."))
    model = history.find(ModelEntry)
    loaded: Line = ("was not loaded.",) if model is None else ("was loaded as ", Code(model.body.digest), ".")
    yield Paragraph(
        (
            "The model ",
            session.from_spec("spec", "model", "source"),
            ", declared ",
            Code(spec.model.kind),
            ", ",
            *loaded,
        )
    )
    analysis = {name: session.from_spec("spec", "analysis", name) for name in ("alpha", "minimum_effect", "n", "power")}
    yield Paragraph(
        (
            *("The treatment ", Code(spec.analysis.treatment), " is compared with the baseline "),
            *(Code(spec.analysis.baseline), " in ", Code(spec.analysis.primary_metric), " on the same "),
            *(analysis["n"], " held-out items, by the exact McNemar test, two-sided, at alpha ", analysis["alpha"]),
            *("; the smallest gain of interest is ", analysis["minimum_effect"], ", planned with power "),
            *(analysis["power"], "; the seed is ", session.from_spec("spec", "analysis", "seeds", 0), "."),
        )
    )
    if "constitution" in session.report:
        yield Paragraph(("The constitution: ", session.from_report("constitution"), "."))
    used = [reference for reference in REFERENCES if reference.is_used(parts)]
    if used:
        line: list[Part] = ["Used were "]
        for reference in used:
            line += ["" if reference is used[0] else "; ", reference.words, " ", Citation(reference.key)]
        yield Paragraph([*line, "."])
    yield Table(
        "data",
        "Data, as registered",
        ("data", "file", "digest"),
        [
            (
                (Code(name),),
                (session.from_spec("spec", *(("heldout",) if name == "heldout" else ("data", name)), "path"),),
                (Code(digest),),
            )
            for name, digest in history.resolved.data_digests.items()
        ],
    )
    yield Table("settings", "Settings of what was trained", ("stage", "setting", "value"), list(_settings(session)))


def _settings(session: CitedSession) -> Iterator[Sequence[Line]]:
    """Yield the granted settings of each training stage, or the registered ones of a stage that was not launched."""
    history = session.history
    for place, stage in enumerate(history.resolved.spec.stages):
        if not kind_of(stage).trains:
            continue
        attempt = history.accepted_attempt(stage.name) or history.attempt(stage.name, len(history.attempts(stage.name)))
        launch, order = attempt.launch, attempt.order
        for name in stage.parameters.model_dump(mode="json") if order is None else order.parameters:
            if launch is None:
                claim = session.from_spec("spec", "stages", place, "parameters", name)
            else:
                claim = session.from_store(launch, launch.body.order, "parameters", name)
            yield (Code(stage.name),), (Code(name),), (claim,)


def _results(session: PaperSession) -> Iterator[Block]:
    cited, report = session.cited, session.cited.report
    name = cited.name
    if report["outcome"] != "approve" and report["why"]:
        yield ItemList([(cited.from_report("why", index),) for index in range(len(report["why"]))])
    if (compared := report["comparison"]) is not None:
        yield Table(
            f"comparison-{name}",
            "The registered comparison",
            ("metric", "value", "95 % interval", "n"),
            list(_comparison_rows(cited, compared)),
        )
    if arms := (compared or {}).get("arms"):
        header = ("arm", "right", "accuracy", "gain over baseline", "adjusted p", "lead of treatment", "adjusted p")
        rows = [_arm_row(cited, index, arm) for index, arm in enumerate(arms)]
        yield Table(f"arms-{name}", "Every arm on the same items", (*header, "must be beaten"), rows)
    if principles := (compared or {}).get("principles"):
        yield Table(
            f"principles-{name}",
            "Answers that keep to each principle of the constitution, and the answers to items that ask for it",
            ("arm", *(text for id in principles[0]["kept"] for text in (id, "of"))),
            [
                (
                    (Code(row["arm"]),),
                    *(
                        (cited.from_report("comparison", "principles", index, what, id),)
                        for id in row["kept"]
                        for what in ("kept", "answers")
                    ),
                )
                for index, row in enumerate(principles)
            ],
        )
    if curve := (compared or {}).get("curve"):
        yield Paragraph(("Learning curve: ", cited.from_report("comparison", "curve", "detail"), "."))
        yield Table(
            f"curve-{name}",
            "The points of the learning curve",
            ("point", "examples", "accuracy", "95 % interval", "by the curve"),
            [
                _curve_row(partial(cited.from_report, "comparison", "curve", "points", index), point)
                for index, point in enumerate(curve["points"])
            ],
        )
    if kinds := report["accuracy_by_kind"]:
        fields = ("items", "baseline", "treatment", "gained", "lost", "p", "p_adjusted")
        yield Table(
            f"kinds-{name}",
            "Each kind of item separately: right answers of both arms, and the exact test",
            ("kind", *(field.replace("_", " ") for field in fields)),
            [
                ((Code(kind),), *((cited.from_report("accuracy_by_kind", kind, field),) for field in fields))
                for kind in kinds
            ],
        )
    if rows := list(_metric_rows(cited)):
        yield Table(
            f"metrics-{name}", "Every metric of the last attempts", ("metric", "value", "95 % interval", "n"), rows
        )
    yield Table(f"gates-{name}", "Gates", ("gate", "decision", "reasons"), list(_gate_rows(cited)))
    for plot in session.plots:
        stem = plot.removesuffix(".svg")
        yield Figure(f"{name}/{stem}", f"{stem} of {name}")


def _comparison_rows(session: CitedSession, compared: dict[str, Any]) -> Iterator[Sequence[Line]]:
    primary = compared["primary_metric"]
    for arm in ("baseline", "treatment"):
        digest = compared[f"{arm}_metrics"]
        metric = session.history.store.get_value(digest)["metrics"][primary]
        yield _metric_row(session, digest, metric, (f"{arm}, ", Code(primary)))
    for name, metric in compared["metrics"].items():
        yield _metric_row(session, compared["treatment_metrics"], metric, (Code(name),))


def _arm_row(session: CitedSession, index: int, arm: dict[str, Any]) -> Sequence[Line]:
    def cite(*parts: object) -> Claim:
        return session.from_report("comparison", "arms", index, *parts)

    def interval(*ends: tuple[object, ...]) -> Line:
        low, high = (cite(*end) for end in ends)
        return " [", low, ", ", high, "]"

    cells: list[Line] = [(Code(arm["name"]),), (cite("right"), " of ", cite("items"))]
    cells.append((cite("accuracy"), *interval(("low",), ("high",))))
    for what in ("gain", "lead"):
        ends = interval((f"{what}_interval", 0), (f"{what}_interval", 1)) if what in arm else ()
        cells += [(cite(what), *ends), (cite(f"{what}_p_adjusted"),)] if what in arm else [(), ()]
    demanded = "yes, beaten" if arm.get("beaten") else "yes, not beaten"
    return *cells, (demanded if arm["must_be_beaten"] else "no",) if "lead" in arm else ()


def _curve_row(cite: Callable[[str], Claim], point: dict[str, Any]) -> Sequence[Line]:
    fitted: Line = (cite("fitted"),) if "fitted" in point else ()
    interval: Line = (cite("low"), " to ", cite("high"))
    return (Code(point["name"]),), (cite("examples"),), (cite("accuracy"),), interval, fitted


def _metric_rows(session: CitedSession) -> Iterator[Sequence[Line]]:
    for stage in session.report["stages"]:
        attempt = stage["attempts"][-1]
        for metric in attempt["metrics"].values():
            label = Code(f"{stage['stage']}.{attempt['attempt']}.{metric['id']}")
            yield _metric_row(session, attempt["metrics_digest"], metric, (label,))


def _metric_row(session: CitedSession, digest: str, metric: dict[str, Any], label: Line) -> Sequence[Line]:
    name = metric["id"]
    value, n = session.from_metric(digest, name), session.from_metric(digest, name, "n")
    return label, (value,), session.interval(digest, metric), (n,)


def _gate_rows(session: CitedSession) -> Iterator[Sequence[Line]]:
    for entry in session.history.of(DecisionEntry):
        place = f"{entry.body.stage or DESIGN}.{entry.body.attempt}"
        line: list[Part] = []
        for index in range(len(entry.body.reasons)):
            line += ["; " if line else "", session.from_entry(entry, "reasons", index)]
        yield (Code(place),), (session.from_entry(entry, "outcome"),), line


def _limits(session: CitedSession, several: bool) -> Iterator[Line]:
    report = session.report
    for name in ("not_judged", "not_replayed", "not_witnessed"):
        words = {"not_judged": "Not judged: ", "not_replayed": "Training that no witness repeated: "}
        for index in range(len(report[name])):
            yield words.get(name, "Repeated by no witness: "), session.from_report(name, index)
    if not several and session.history.find(ReplicationEntry) is None:
        yield ("One seed: variation between seeds is not part of the interval.",)
    if session.history.is_exploratory:
        yield ("Exploratory: the design was amended after data had been seen.",)
    yield "Evaluations of the held-out split in this session: ", session.from_report("evaluations_of_heldout")
    yield "Gates or checks that a person lifted: ", session.from_report("overrides")
    for index, person in enumerate(report["people"]):
        yield (
            session.from_report("people", index, "what"),
            " by ",
            Code(person["by"]),
            ": ",
            session.from_report("people", index, "reason"),
        )
    for index, row in enumerate(report.get("scorecard", {"rows": ()})["rows"]):
        if row["status"] != "shown":
            claim = session.from_report("scorecard", "rows", index, "claim")
            yield (
                f"{row['status'].capitalize()}: ",
                claim,
                " (",
                session.from_report("scorecard", "rows", index, "why"),
                ")",
            )
    yield "Only heads of the trail that were kept elsewhere show that it was not made anew: ", Code(ANCHOR), "."


def _seeds(sessions: Sequence[PaperSession]) -> tuple[list[Block], bool | None]:
    """Return the comparison over several sessions, or over the registered further seeds, and whether the gain holds.

    Without either, nothing is known: None.
    """
    if len(sessions) == 1:
        return _registered_seeds(sessions[0].cited)
    compared = [compare_seed(session.run, session.cited.history) for session in sessions]
    over = together(compared)
    rows: list[Sequence[Line]] = []
    gains: list[Claim] = []
    for session, comparison in zip(sessions, compared, strict=True):
        cited, digest = session.cited, session.cited.report["comparison"]["treatment_metrics"]
        gains.append(cited.from_metric(digest, "accuracy_gain"))
        seed = cited.from_spec("spec", "analysis", "seeds", 0)
        p = cited.from_metric(digest, cited.history.resolved.spec.analysis.p_metric)
        rows.append(((Code(comparison.session),), (seed,), (gains[-1],), (p,)))

    def derive(what: str, value: float) -> Claim:
        find = f"peergate seeds {' '.join(session.cited.name for session in sessions)}"
        return sessions[0].cited.combine(what, value, tuple(gains), find)

    low, high = (
        derive(f"{end} end of the interval over seeds", over.interval[place])
        for place, end in ((0, "lower"), (1, "upper"))
    )
    line = ("Gain over seeds: ", derive("gain over seeds", over.difference), ", 95 % interval ", low, " to ", high, ".")
    table = Table("seeds", "The comparison by seed", ("session", "seed", "gain", "exact McNemar p"), rows)
    unproven = ("That no other seed of this design was run, these trails do not show.",)
    return [Paragraph(line), table, Paragraph(unproven)], over.interval[0] > 0


def _registered_seeds(session: CitedSession) -> tuple[list[Block], bool | None]:
    entry = session.history.find(ReplicationEntry)
    if entry is None:
        return [], None
    result = session.history.store.get_value(entry.body.result)

    def cite(*parts: object) -> Claim:
        return session.from_store(entry, entry.body.result, *parts)

    rows = [
        (
            (Code(seed["session"]),),
            (cite("seeds", index, "seed"),),
            (cite("seeds", index, "gain"),),
            (cite("seeds", index, "p"),),
            (cite("seeds", index, "why"),) if seed["why"] else (),
        )
        for index, seed in enumerate(result["seeds"])
    ]
    header = ("session", "seed", "gain", "exact McNemar p", "why it failed")
    table = Table("seeds", "The registered further seeds", header, rows)
    return [Paragraph((cite("summary"), ".")), table], result["replicated"]


def _reproduction(sessions: Sequence[PaperSession]) -> Iterator[Block]:
    yield Paragraph(("Each session, from the folder of this paper:",))
    yield ItemList([(Code(command_of(session.cited.history)),) for session in sessions])
