"""The Spark engine as the command calls it: a session of its own for one audit."""

from collections.abc import Mapping, Sequence

from kraftpy.audit.local import Options
from kraftpy.audit.spark.pipeline import audit as audit_on
from kraftpy.audit.spark.session import SPARK_ERRORS, new_session
from kraftpy.audit.violations import AuditResult
from kraftpy.errors import KraftError


def audit(
    paths: Sequence[str],
    options: Options,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    state: str | None = None,
) -> AuditResult:
    """Audit with a new session, or the one that spark-submit has made; it is stopped afterwards."""
    try:
        spark = new_session(master, conf)
        try:
            return audit_on(spark, paths, options, state)
        finally:
            spark.stop()
    except SPARK_ERRORS as error:
        raise KraftError(f"Spark: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    """What is wrong, without the stacks of both sides."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    causes = [line for line in lines if ": " in line and not line.startswith("at ")]
    return (causes or lines or [type(error).__name__])[0]
