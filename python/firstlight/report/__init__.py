"""The answer in words: tables for a terminal or a Markdown page, and one JSON document."""

from __future__ import annotations

from firstlight.report.delivered import meets
from firstlight.report.document import document
from firstlight.report.tables import sources, tables

__all__ = ["document", "meets", "sources", "tables"]
