"""What an audit found, for people: one page of HTML, and timelines of partitions."""

from kraftpy.audit.report.chronicle import Chronicle, PartitionEvent, chronicle_of
from kraftpy.audit.report.page import offending, report_page

__all__ = ["Chronicle", "PartitionEvent", "chronicle_of", "offending", "report_page"]
