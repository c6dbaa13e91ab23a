"""Where sessions of the matrix live: what stores their trail and graph, and what launches their jobs.

Another house is another value: its spec says which launcher it takes, and opening it brings up what it needs, a server
or a cluster, which all of its sessions share. A house that cannot be had on a machine says why.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from reviews.audit.verify import Audit, verify_run
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.pointer import keep_database
from testing.factories import compared_session
from testing.fixtures import postgres_server, ray_cluster
from testing.fixtures.job_python import REAL, job_python
from tests.kill import processes


def _nothing() -> str:
    return ""


def _bare(_: Path) -> None:
    return


def _only_forked(_: Path) -> list[int]:
    return []


@contextmanager
def _as_it_is(house: House, _: Path) -> Generator[House]:
    yield house


@dataclass(frozen=True, eq=False)
class House:
    """One combination of saver and launcher."""

    name: str
    changes: tuple[tuple[str, str], ...] = ()
    """Of the small spec: each replaces one text that stands in it exactly once."""
    templates: str = "templates"
    """The folder of what its stages leave."""
    jobs: int = 10
    """How many a session has: those of the small spec's five stages, and their witnesses."""
    silent: tuple[str, ...] = ()
    """Stages that are real ones, which leave no line in the file of effects."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further variables of `peergate`."""
    missing: Callable[[], str] = _nothing
    """Says what is not there on this machine; empty when everything is."""
    opened: Callable[[House, Path], AbstractContextManager[House]] = _as_it_is
    """Brings up what the house needs, with a folder to work in; what it gives is the house to use."""
    furnish: Callable[[Path], None] = _bare
    """Prepares the place of a session."""
    wrappers: Callable[[Path], list[int]] = _only_forked
    """Finds the wrappers of a session, by its place, that the zygote did not fork."""
    wrapper_takes: float = 1.0
    """How much longer a wrapper lives than a forked one."""

    def entries(self, run: Path) -> list[RecordedEntry]:
        """Read the trail."""
        return read_entries(run / "trail.sqlite")

    def audit(self, run: Path) -> Audit:
        """Verify the trail, as `peergate audit verify` does."""
        return verify_run(run, "trail.sqlite", "store")

    def store(self, run: Path) -> Store:
        """Return the store of a run folder."""
        return Store(run / "store")


# ---- a trail and checkpoints in Postgres ----------------------------------------------------------------------


def _no_postgres() -> str:
    if postgres_server.programs() is None:
        return postgres_server.MISSING
    return "" if find_spec("psycopg") else "psycopg is not installed: pip install 'peergate[postgres]'"


@contextmanager
def _with_postgres(house: House, _: Path) -> Generator[House]:
    """Start a server with one database, in which all sessions are, as those of a workspace are."""
    from reviews.trail.tables.postgres_connection import open_database

    with postgres_server.running() as server:
        address = server.new_database()
        # Held open: every look at a trail would connect anew.
        database = open_database(address)

        def furnish(ground: Path) -> None:
            keep_database(ground / "runs", address)

        try:
            yield replace(house, furnish=furnish)
        finally:
            database.close()


# ---- jobs on Ray ----------------------------------------------------------------------------------------------

_STAGE = """
stage = {stage!r}
wrapper.stage_command = lambda order, folder: [{python!r}, "-I", "-S", stage, str(folder)]
"""


@contextmanager
def _with_ray(house: House, folder: Path) -> Generator[House]:
    """Start a cluster, on which the jobs of all sessions run."""
    planted = _STAGE.format(stage=str(Path(__file__).with_name("stage.py")), python=REAL)
    with ray_cluster.running(folder / "cluster") as cluster:
        assert cluster.token is not None
        python = job_python(folder / "python", planted)
        named = {"RAY_ADDRESS": cluster.address, "RAY_AUTH_TOKEN": cluster.token, "PEERGATE_JOB_PYTHON": python}
        yield replace(house, environ={**house.environ, **named})


TRAINING = (
    ("learning_rate: 1e-5, epochs: 2", "learning_rate: 1e-3, checkpoint_steps: 3, epochs: 2"),
    ("learning_rate: {min: 1e-6, max: 1e-4}", "learning_rate: {min: 1e-6, max: 1e-2}"),
)
"""Changes of the spec for a site whose model can be trained: it learns enough to be seen, and saves steps."""
STOPPING = (
    ("learning_rate: 1e-5, epochs: 2", "learning_rate: 1e-3, validation_share: 0.3, early_stopping: {every_steps: 3, "
     "patience: 3, min_improvement: 5}, epochs: 4"),
    TRAINING[1],
)  # fmt: skip
"""The same with a rule that ends the training after four readings, and saves the weights of one of them."""
SQLITE_LOCAL = House("sqlite+local")
COMPARED_LOCAL = House(
    "sqlite+local+compared",
    changes=compared_session.CHANGES,
    templates="compared",
    jobs=18,
    furnish=compared_session.write_transfer_items,
)
"""A further arm, several answers to each item, and a transfer split."""
POSTGRES_LOCAL = House("postgres+local", missing=_no_postgres, opened=_with_postgres)
SQLITE_RAY = House(
    "sqlite+ray",
    changes=(("task: format_instructions\n", "task: format_instructions\nlauncher: ray\n"),),
    missing=ray_cluster.missing,
    opened=_with_ray,
    wrappers=processes.wrappers,
    wrapper_takes=8.0,
)
HOUSES = (SQLITE_LOCAL, COMPARED_LOCAL, POSTGRES_LOCAL, SQLITE_RAY)
