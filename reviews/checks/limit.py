"""Where a check draws its line: a key of the spec, so that no threshold lives in code."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from specs.exact import decimal_text
from specs.session.session_spec import SessionSpec


class Limit(NamedTuple):
    """A threshold that the spec sets, and the side of it on which healthy figures lie."""

    sign: str
    key: str
    """Dotted, from the top of a spec: ``thresholds.truncated_answers``."""

    def value(self, spec: SessionSpec) -> float:
        """Return the registered value."""
        found: Any = spec
        for part in self.key.split("."):
            found = getattr(found, part)
        return float(found)

    def default(self) -> float | None:
        """Return the value of a spec that does not set it, or None where every spec has to."""
        field = self._field()
        return None if field.default is PydanticUndefined else float(field.default)

    def meaning(self) -> str:
        """Return unit and population in words, as far as the contract says them."""
        return " ".join((self._field().description or "").split())

    def told(self, value: float) -> str:
        """Return sign and value: ``<= 0.25``."""
        return f"{self.sign} {decimal_text(value)}"

    def _field(self) -> Any:
        model: type[BaseModel] = SessionSpec
        *above, last = self.key.split(".")
        for part in above:
            inner: Any = model.model_fields[part].annotation
            model = inner
        return model.model_fields[last]


def told(limits: tuple[Limit, ...], spec: SessionSpec) -> str | None:
    """Return the registered limits in one line; None when there are none."""
    if len(limits) == 1:
        return limits[0].told(limits[0].value(spec))
    return "; ".join(f"{limit.key.split('.')[-1]} {limit.told(limit.value(spec))}" for limit in limits) or None
