"""Older free-text reviews as read-only records: what each file of a folder decided, if that can be told.

Nothing here writes to a trail, and nothing that a gate reads imports it: a record can never open one.
"""

from __future__ import annotations

from reviews.legacy.files import Record, read_bytes, read_file, read_folder
from reviews.legacy.text import Reading, read_text

__all__ = ["Reading", "Record", "read_bytes", "read_file", "read_folder", "read_text"]
