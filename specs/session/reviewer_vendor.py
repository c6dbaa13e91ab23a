"""A reviewer's vendor that another distribution brings (``peergate.reviewers``), and the variable of a reviewer's key.

A session reads the declaration; only the reviewer's process imports the function it names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from specs.system import plugins
from specs.system.errors import PluginFault
from specs.system.text import plain
from specs.system.vendors.api_keys import key_in, variable_of
from specs.system.vendors.parties import ReviewerSpec

GROUP: plugins.Group = "peergate.reviewers"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,57}_(KEY|TOKEN)")
"""Values of variables with such names are masked wherever text is kept (``specs/system/masking.py``)."""
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class ReviewerVendor:
    """One vendor of reviewers."""

    name: str
    review: str
    """The function that reviews, ``module:function``:
    :class:`reviews.reviewers.vendors.plugin_reviewer.PluginReviewFunction`."""
    asks_model: bool = False
    """Whether it asks a model; a spec then names the model, and a review may cost ``effort.max_cost_usd``."""
    key_variable: str = ""
    """The environment variable of its key: the reviewer's process gets it, and few others."""


@cache
def vendor_of(name: str) -> ReviewerVendor:
    """Return the plug-in vendor of a name; raises PluginFault if none is installed or it cannot be used."""
    point = plugins.find(GROUP, name)
    if point is None:
        raise PluginFault(f"reviewer vendor '{name}' is not installed", hint="install a distribution that has it")
    result: Any = plugins.load(point)
    where = plugins.where(point)
    if not isinstance(result, ReviewerVendor):
        raise PluginFault(f"is a {type(result).__name__}, not a ReviewerVendor", where=where)
    if result.name != name:
        raise PluginFault(f"its vendor is named {plain(repr(result.name), 60)}, not '{name}'", where=where)
    if not _FUNCTION.fullmatch(result.review):
        raise PluginFault(f"its review is {plain(repr(result.review), 60)}, not 'module:function'", where=where)
    if result.key_variable and not _VARIABLE.fullmatch(result.key_variable):
        message = f"its key_variable is {plain(repr(result.key_variable), 60)}, which is not a NAME_KEY or NAME_TOKEN"
        raise PluginFault(f"{message}: its value would not be masked", where=where)
    return result


def key_variable(reviewer: ReviewerSpec) -> str:
    """Return the variable of a reviewer's key, empty where it needs none; raises PluginFault as :func:`vendor_of`."""
    if reviewer.is_plugin:
        return vendor_of(reviewer.vendor).key_variable
    if not reviewer.asks_a_model:
        return ""
    return variable_of("reviewer", reviewer.vendor, reviewer.base_url)


def plugin_key(vendor: ReviewerVendor, environ: Mapping[str, str]) -> str:
    """Return a plug-in vendor's key, empty where it needs none; raises UserError if its variable holds no key."""
    if not vendor.key_variable:
        return ""
    return key_in(vendor.key_variable, f"reviewer vendor '{vendor.name}'", environ)
