"""The judge of ``export`` stages: does llama.cpp read the same model, and the same text?"""

from __future__ import annotations

from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import read_rows
from reviews.stages.packaging.checks import changed_since
from reviews.stages.packaging.usable_checks import report_flaws
from specs.stages.base.metric import MetricSet
from specs.stages.packaging.parameters import BARS, ExportParameters
from specs.stages.packaging.rows import ExportRow, ExportTextRow
from specs.system.errors import EvidenceMissing
from training.rules.packaging.checkpoint_folder import CheckpointFolder
from training.rules.packaging.flaw import NotRun
from training.rules.packaging.gguf_rules import gguf
from training.rules.packaging.gguf_values import values

CHECKS = CheckRegistry(("export",))
_UNREAD = "registered without a reading by llama.cpp, which was not installed (extra gguf) or not wanted"


def read(evidence: Evidence, output: str) -> Subjects | None:
    """Return the rows of what llama.cpp read; None where it was registered to read nothing."""
    if evidence.parse_parameters(ExportParameters).verify != "llama_cpp":
        return None
    form = ExportRow if output == "rows" else ExportTextRow
    return as_written(read_rows(evidence.outputs.get(output), form, f"export {output}"), output)


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return whether llama.cpp finds the same tokens for each probe; errors as :func:`read_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), ExportRow, "export rows", may_be_empty=True)
    return [
        {"item": row.item, "tokens": len(row.expected), "same": row.expected == row.read, "largest": row.largest}
        for row in rows
    ]


@CHECKS.add(
    "export.file",
    "The exported file is whole, and describes and holds the granted model",
    source="a GGUF file that loads and reads other text: no pre-tokenizer, no rope base, another end token",
    reads_weights=True,
)
def _check_file(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Read the header of the file, and compare it and every number with the checkpoint that was granted.

    A number may differ by what its type rounds it to: nothing in 32 bits, 2**-11 of itself in 16, 0.56 of a step in 8.
    """
    folder, model = evidence.outputs.get("export"), evidence.inputs.get("model")
    if folder is None or model is None or not model.is_dir():
        raise EvidenceMissing("export or checkpoint is missing")
    if change := changed_since(evidence, "model"):
        return CheckOutcome("FAIL", change, repairable=False)
    files = sorted(folder.rglob("*.gguf"))
    if len(files) != 1:
        return CheckOutcome("FAIL", f"the export holds {len(files)} GGUF files instead of one", float(len(files)))
    checkpoint = CheckpointFolder(model)
    flaws = list(gguf(checkpoint, files[0]))
    try:
        flaws += values(checkpoint, files[0])
    except NotRun as error:
        if not flaws:
            return CheckOutcome("WARN", f"the exported file describes the model; {error}")
    return report_flaws(tuple(flaws), "the exported file")


@CHECKS.add(
    "export.tokens",
    "llama.cpp reads text as the checkpoint's tokenizer does",
    source="numbers read as other tokens than in training, under another name of the pre-tokenizer",
)
def _check_tokens(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    if evidence.parse_parameters(ExportParameters).verify != "llama_cpp":
        return CheckOutcome("NOT_APPLICABLE", _UNREAD)
    need(metrics, "same_token_ids")
    rows = read_rows(evidence.outputs.get("texts"), ExportTextRow, "export texts")
    wrong = [row for row in rows if row.expected != row.read]
    if wrong:
        message = f"{len(wrong)} of {len(rows)} texts become other tokens in llama.cpp"
        return CheckOutcome(
            "FAIL", message, float(len(wrong)), tuple({"text": row.text} for row in wrong), repairable=False
        )
    return CheckOutcome("PASS", f"{len(rows)} texts become the same tokens in llama.cpp", float(len(rows)))


@CHECKS.add(
    "export.answers",
    "llama.cpp continues as the checkpoint does",
    source="an export that loads and computes another model",
)
def _check_answers(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    export_parameters = evidence.parse_parameters(ExportParameters)
    if export_parameters.verify != "llama_cpp":
        return CheckOutcome("NOT_APPLICABLE", _UNREAD)
    rows = read_rows(evidence.outputs.get("rows"), ExportRow, "export rows")
    texts = [item.id for item in evidence.heldout][: export_parameters.probe_items]
    if [row.item for row in rows] != texts:
        return CheckOutcome("FAIL", f"{len(rows)} probes were read, expected the first {len(texts)} items")
    if any(row.read is None for row in rows):
        raise EvidenceMissing("llama.cpp did not read every probe")
    if not any(row.expected for row in rows):
        return CheckOutcome("FAIL", "every answer is empty: equal tokens show nothing", 0.0)
    bar = BARS[export_parameters.format]
    same, distance = need(metrics, "same_top_tokens"), need(metrics, "logit_distance")
    divergence = need(metrics, "logit_divergence")
    message = (
        f"{same:.1%} of the tokens are the same (at least {bar.same_tokens:.1%}), logits differ by {distance:.2g} (at "
        f"most {bar.largest_distance:g}), by {divergence:.2g} nats on average (at most {bar.mean_divergence:g})"
    )
    apart = same < bar.same_tokens or distance > bar.largest_distance or divergence > bar.mean_divergence
    others = tuple({"item": row.item, "largest": row.largest} for row in rows if row.expected != row.read)
    return CheckOutcome(
        "FAIL" if apart else "PASS", f"{export_parameters.format}: {message}", same, others if apart else ()
    )
