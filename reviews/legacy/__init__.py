"""Older free-text reviews as read-only records: what each file of a folder decided, if that can be told.

Nothing here writes to a trail, and nothing that a gate reads imports it: a record can never open one.
"""

from __future__ import annotations

from reviews.legacy.folder import read_folder
from reviews.legacy.reader import read_bytes
from reviews.legacy.records import Record, Trail

__all__ = ["Record", "Trail", "read_bytes", "read_folder"]
