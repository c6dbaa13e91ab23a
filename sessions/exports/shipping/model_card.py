"""The model card: rendered from the recorded report and the registered spec, so that no number in it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.history.history import History
from reviews.stages.finetuning.lineage_checks import LINEAGE
from sessions.pages.report.report import recorded_report
from sessions.pages.template import render
from sessions.run.final_model import FinalModel
from specs.stages.registry import kind_of
from specs.system.masking import current

CARD = "README.md"


def model_card(run: Path, history: History, model: FinalModel) -> str:
    """Return the card of a session's model: what it is, data, training, evaluation, limits, gates.

    Raises:
        EvidenceMissing: the session has no report.
        AuditDamage: the report is not the recorded one.
    """
    report = recorded_report(run, history)
    spec = history.resolved.spec
    treatment = next((stage for stage in report["stages"] if stage["stage"] == spec.analysis.treatment), None)
    accepted = [attempt for attempt in (treatment or {"attempts": []})["attempts"] if attempt["gate"]]
    checks: list[dict[str, Any]] = [
        {"place": f"{stage['stage']}.{attempt['attempt']}", **check}
        for stage in report["stages"]
        for attempt in stage["attempts"]
        for check in (attempt["gate"] or {"checks": []})["checks"]
    ]
    text = render(
        "model_card.md.j2",
        report=report,
        spec=spec,
        model=model,
        source=report["model"],
        data={
            name: {"path": data_file.path, "digest": history.resolved.data_digests.get(name)}
            for name, data_file in spec.data.items()
        },
        trained=[_summarize_training(report, stage.name) for stage in spec.stages if kind_of(stage).trains],
        evaluated=list(accepted[-1]["metrics"].values()) if accepted else [],
        # Whose outputs were learned from, and under which terms; where no one else wrote them, there is nothing to say.
        taught=[check for check in checks if check["id"] == LINEAGE and check["status"] != "NOT_APPLICABLE"],
        warnings=[check for check in checks if check["status"] not in ("PASS", "NOT_APPLICABLE")],
        parameters={
            stage.name: stage.parameters.model_dump(mode="json") for stage in spec.stages if kind_of(stage).trains
        },
    )
    return current().text(text)


def _summarize_training(report: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what is measured of the accepted training of a stage."""
    stage = next((stage for stage in report["stages"] if stage["stage"] == name), None)
    attempts = (
        [attempt for attempt in stage["attempts"] if attempt["attempt"] == stage["accepted_attempt"]] if stage else []
    )
    metrics = list(attempts[-1]["metrics"].values()) if attempts else []
    return {"stage": name, "kind": stage["kind"] if stage else "", "metrics": metrics}
