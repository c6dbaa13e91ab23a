"""The page of the statistical functions: what each returns, with its source."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import reviews.statistics
from sessions.reference.contract_fields import docstring, table


def statistics_page() -> str:
    """Return the page."""
    parts = [
        "# Statistical functions",
        "Pure functions with named arguments; what they draw, they draw with a fixed seed.",
    ]
    for found in sorted(pkgutil.iter_modules(reviews.statistics.__path__), key=lambda one: one.name):
        module = importlib.import_module(f"reviews.statistics.{found.name}")
        rows = [
            (f"`{name}`", docstring(function).split("\n\n")[0])
            for name, function in inspect.getmembers(module, inspect.isfunction)
            if function.__module__ == module.__name__ and not name.startswith("_")
        ]
        parts += [f"## reviews.statistics.{found.name}", docstring(module), table(("function", "what it does"), rows)]
    return "\n\n".join(parts) + "\n"
