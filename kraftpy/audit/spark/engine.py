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
        if state is None:
            return audit_on(spark, paths, options)
        from kraftpy.audit.state import audit as audit_with_state

        return audit_with_state(
            paths, options, state, lambda found, more: audit_on(spark, found, more)
        )
    finally:
        spark.stop()
