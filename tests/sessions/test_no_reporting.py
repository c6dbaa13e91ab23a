"""Nothing leaves the machine that a person did not ask for: every library's own reporting is off, whatever is set."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.jobs.job_environment import job_environment
from sessions.jobs.sandbox.sandbox import variables
from specs.stages.recipes.parameters import RecipeParameters
from specs.system.reporting import REPORTING_OFF, turn_off_reporting
from testing.fixtures.sink import Sink
from testing.fixtures.small_text import small_model
from tests.sessions.test_own_data import SFT, csv_rows, prepared

ON = {"0": "1", "1": "0", "true": "false", "false": "true", "False": "True", "disabled": "online"}
"""The opposite of a value that turns reporting off."""
GRAPH = """
from langgraph.graph import END, START, StateGraph
from typing import TypedDict
class State(TypedDict):
    name: str
graph = StateGraph(State)
graph.add_node("node", lambda state: {"name": state["name"] + "!"})
graph.add_edge(START, "node")
graph.add_edge("node", END)
print(graph.compile().invoke({"name": "Ada of the canary"}))
"""
HUB = """
from huggingface_hub.utils import send_telemetry
import time
send_telemetry("trl/SFTTrainer", library_name="trl", library_version="1")
time.sleep(2)
"""
ANTHROPIC = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(timeout=2)))
with provider.get_tracer("any").start_as_current_span("a state"):
    pass
"""
REPORTERS = {"langgraph": GRAPH, "huggingface_hub": HUB, "opentelemetry": ANTHROPIC}


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    yield made
    made.close()


def switched_on(sink: Sink) -> dict[str, str]:
    """Return an environment in which everything reports, to the sink alone."""
    address = f"http://127.0.0.1:{sink.port}"
    addresses = (
        *("LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT", "HF_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "WANDB_BASE_URL"),
        *("MLFLOW_TRACKING_URI", "COMET_URL_OVERRIDE", "RAY_USAGE_STATS_REPORT_URL", "CLEARML_API_HOST"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"),
    )
    keys = ("LANGSMITH_API_KEY", "LANGCHAIN_API_KEY", "WANDB_API_KEY", "COMET_API_KEY", "HF_TOKEN")
    off = {name: ON[value] for name, value in REPORTING_OFF.items() if value in ON}
    named = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}
    offline = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "0")
    unset = {"NO_PROXY": "", "no_proxy": ""}
    return off | offline | named | unset | dict.fromkeys(addresses, address) | dict.fromkeys(keys, "canary-of-a-key")


def run(sink: Sink, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    saved = {
        name: os.environ[name] for name in ("PATH", "HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME") if name in os.environ
    }
    environment = saved | switched_on(sink) | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("library", REPORTERS)
def test_a_library_that_reports_is_silent_in_every_process_of_peergate(
    library: str, sink: Sink, tmp_path: Path
) -> None:
    done = run(sink, "-c", f"import specs\n{REPORTERS[library]}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sink.heard == []
    # The control: the sink hears it otherwise.
    run(sink, "-c", REPORTERS[library], cwd=tmp_path)
    assert sink.heard


def test_every_variable_is_set_for_jobs_and_scripts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in REPORTING_OFF:
        monkeypatch.setenv(name, "on")
    assert job_environment().items() >= REPORTING_OFF.items()
    script = RecipeParameters.model_construct(seed=1, gpu=False)
    assert variables(script, "in", "out").items() >= REPORTING_OFF.items()
    turn_off_reporting()
    assert os.environ.items() >= REPORTING_OFF.items()


def test_every_library_that_can_be_kept_from_reporting_is(tmp_path: Path) -> None:
    """A new library shows up here with the variable by which it asks."""
    packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    asks = re.compile(
        rb"""["']((?:[A-Z]+_)*(?:DO_NOT_TRACK|DISABLE_TELEMETRY|NO_ANALYTICS|USAGE_STATS\w*|TRACING_V2|USE_OTEL|OPEN_TELEMETRY))["']"""
    )
    results = {
        (path.relative_to(packages).parts[0], name.decode())
        for path in packages.rglob("*.py")
        for name in asks.findall(path.read_bytes())
    }
    assert {library for library, _ in results} >= {"huggingface_hub", "anthropic", "torchft"}
    # langsmith puts its own name in front.
    names = {name for _, name in results} - {"TRACING_V2"}
    assert names <= set(REPORTING_OFF), results


@pytest.mark.integration
@pytest.mark.more
@pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")
def test_a_session_reports_nothing_with_every_variable_set(tmp_path: Path, sink: Sink) -> None:
    model = small_model(tmp_path / "model", chat=True)
    spec = prepared(tmp_path, model, "own.csv", csv_rows, SFT)
    runs = ("--runs", tmp_path / "runs")
    run(sink, "-m", "sessions.commands.cli", "start", spec, *runs, cwd=tmp_path)
    # A model that learned nothing opens no gate; what follows is its training.
    done = run(
        sink, "-m", "sessions.commands.cli", "override", "small", "--gate", "--reason", "a test", *runs, cwd=tmp_path
    )  # fmt: skip
    for stage in ("before", "train"):
        assert (tmp_path / "runs" / "small" / "jobs" / f"small.{stage}.1" / "manifest.json").is_file(), done.stderr
    assert sink.heard == []
