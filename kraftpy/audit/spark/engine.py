"""The Spark engine as the command calls it: a session of its own for one audit."""

from collections.abc import Mapping, Sequence

from kraftpy.audit.local import Options
from kraftpy.audit.spark.pipeline import audit as audit_on
from kraftpy.audit.spark.session import new_session
from kraftpy.audit.violations import AuditResult


def audit(
    paths: Sequence[str],
    options: Options,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    state: str | None = None,
) -> AuditResult:
    """Audit with a new session, or the one that spark-submit has made; it is stopped afterwards."""
    spark = new_session(master, conf)
    try:
        return audit_on(spark, paths, options, state)
    finally:
        spark.stop()
