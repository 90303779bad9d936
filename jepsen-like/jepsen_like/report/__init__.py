"""Reports: what a run showed, for people (one HTML file) and for machines (JSON)."""

from jepsen_like.report.files import write_index, write_report

__all__ = ["write_index", "write_report"]
