"""Older free-text reviews as read-only records: what each file of a folder decided, if that can be told.

Nothing here writes to a trail, and nothing that a gate reads imports it: a record can never open one.
"""

from __future__ import annotations

from reviews.legacy.files import read_bytes
from reviews.legacy.records import Record, Trail
from reviews.legacy.trail import read_folder

__all__ = ["Record", "Trail", "read_bytes", "read_folder"]
