"""The session spec: the design, which judges read, and the operations, which they do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specs.data.columns import Selection
from specs.data.registered import RegisteredData, read_registered, registered_data
from specs.session.design import Design, ResolvedDesign, RowFile
from specs.session.operations import Operations, attempt_usd, fill_resources
from specs.stages.base.artifacts import As, Learned
from specs.system.resources import LauncherName


class SessionSpec(Operations, Design):
    """One experiment, as it is registered."""

    def with_reasoning(self) -> SessionSpec:
        """Return the spec with the reasoning of each reviewer as it is registered."""
        panel = self.panel
        if panel is not None:
            members = tuple(packet_reviewer.with_reasoning() for packet_reviewer in panel.members)
            last = panel.tie_breaker.with_reasoning() if panel.tie_breaker else None
            panel = panel.model_copy(update={"members": members, "tie_breaker": last})
        return self.model_copy(update={"reviewer": self.reviewer.with_reasoning(), "panel": panel})

    def with_resources(self) -> SessionSpec:
        """Return the spec with what the jobs of each stage ask for, as it is registered."""
        stages = tuple(
            stage.model_copy(update={"resources": fill_resources(stage.resources, self.resources)})
            for stage in self.stages
        )
        return self.model_copy(update={"stages": stages})

    def with_installed(self) -> SessionSpec:
        """Return the spec with the parameters that depend on what is installed here, as they are registered."""
        arguments = {stage.name: getattr(stage.parameters, "resolve_registration", None) for stage in self.stages}
        stages = tuple(
            stage.model_copy(update={"parameters": ask()}) if (ask := arguments[stage.name]) else stage
            for stage in self.stages
        )
        return self.model_copy(update={"stages": stages})

    def launcher_of(self, stage: str) -> LauncherName:
        """Return where the jobs of a stage run; raises KeyError if there is no such stage."""
        return self.stage(stage).launcher or self.launcher


class ResolvedSpec(ResolvedDesign):
    """A spec with everything it names pinned: this is what the session registers and every grant binds to."""

    spec: SessionSpec  # pyright: ignore[reportIncompatibleVariableOverride]

    def attempt_costs(self) -> dict[str, float]:
        """Return the most one attempt of each stage can cost, in USD."""
        return {stage.name: attempt_usd(self.spec.budget, stage) for stage in self.spec.stages}

    def read_data(self) -> dict[str, bytes]:
        """Return the held-out split and the data files as they are registered, one JSON object a line.

        Raises:
            SpecError, OSError: a file changed since the spec was loaded.
        """
        return {name: registered_data(*source) for name, source in self._data_sources()}

    def data_notes(self) -> dict[str, tuple[str, ...]]:
        """Return what of each data file is ignored, left out or read otherwise, in words; errors as those of a read."""
        files = {name: read_registered(*source) for name, source in self._data_sources()}
        return {name: value.notes for name, value in files.items() if isinstance(value, RegisteredData) and value.notes}

    def _data_sources(self) -> Iterator[tuple[str, tuple[Path, As | None, Learned, Selection]]]:
        heldout = self.spec.heldout
        yield "heldout", (self.path(heldout.path), "items", "last", select_columns(heldout))
        for name, file in self.spec.data.items():
            yield name, (self.path(file.path), file.row_kind, file.learned, select_columns(file))


def select_columns(file: RowFile) -> Selection:
    """Return which columns of a file are read under which names."""
    return Selection(file.columns, file.drop)
