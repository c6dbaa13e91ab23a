"""The page that compares the shipped constitutional specs with the published methods, setting by setting."""

from __future__ import annotations

from typing import Any, Literal

from ruamel.yaml import YAML

from sessions.commands.contract_fields import table
from specs.loading.loading import find_spec, load_spec
from specs.session.session_spec import SessionSpec
from specs.system.digests import Contract
from specs.system.home import HOME

FILE = HOME / "specs" / "library" / "data" / "published_settings.yaml"


class PublishedSetting(Contract):
    """A setting of a published method next to that of a spec."""

    what: str
    settings: tuple[str, ...] = ()
    """KIND.PARAMETER, or *.PARAMETER for every kind."""
    ours: str = ""
    published: str
    why: str
    """Why they differ."""

    def covers(self, kind: str, parameter: str) -> bool:
        """Return whether it is about a parameter of a stage kind."""
        return f"{kind}.{parameter}" in self.settings or f"*.{parameter}" in self.settings

    def describe_ours(self, spec: SessionSpec) -> str:
        """Return what the spec sets, by stage where its stages differ; raises ValueError if a setting is unknown."""
        texts = [self.ours] if self.ours else []
        for setting in self.settings:
            kind, _, name = setting.partition(".")
            values = {
                stage.name: _describe(parameters[name])
                for stage in spec.stages
                if kind in ("*", stage.kind) and name in (parameters := stage.parameters.model_dump(mode="json"))
            }
            if not values:
                raise ValueError(f"no stage of '{spec.name}' has a setting {setting}")
            by_stage = ", ".join(f"{value} ({stage})" for stage, value in values.items())
            distinct = list(dict.fromkeys(values.values()))
            texts.append(f"`{setting.removeprefix('*.')}` {distinct[0] if len(distinct) == 1 else by_stage}")
        return "; ".join(texts)


def _describe(value: Any) -> str:
    """Return a value in words; no limit is *all*."""
    return "all" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


class PublishedMethod(Contract):
    """A published method and its settings."""

    method: str
    rows: tuple[PublishedSetting, ...]


class PublishedSettings(Contract):
    """The file of published settings: a method for each spec."""

    schema_version: Literal[1]
    specs: dict[str, PublishedMethod]


def read_published_settings() -> PublishedSettings:
    """Return the published settings; raises ValueError if the file has another form."""
    return PublishedSettings.model_validate(YAML(typ="safe", pure=True).load(FILE.read_text(encoding="utf-8")))


def published_page() -> str:
    """Return the page: a table for each spec, its values those of the spec's default profile."""
    parts = [
        "# Published settings",
        "The shipped constitutional specs next to the published methods. Ours are the values of the default profile;\n"
        "the profiles for a GPU are nearer to the papers in size. *Not stated*: the paper does not say it.",
    ]
    for name, method in read_published_settings().specs.items():
        spec = load_spec(find_spec(name)).spec
        rows = [(row.what, row.published, row.describe_ours(spec), row.why) for row in method.rows]
        parts += [f"## {name}", f"{method.method}.", table(("setting", "published", "ours", "why"), rows)]
    return "\n\n".join(parts) + "\n"
