"""Finds the Java that PySpark needs, or says in one line what to install."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

from kraftpy.errors import ConfigError

JAVA_MINIMUM: Final = 17  # What PySpark 4 asks for.
_ANSWER_TIMEOUT_S: Final = 60


def java_major(version_text: str) -> int | None:
    """The feature release that `java -version` prints: 17 for 17.0.15, 8 for 1.8.0_402."""
    match = re.search(r'version "(?:1\.)?([0-9]+)', version_text)
    return int(match[1]) if match else None


def require_java(minimum: int = JAVA_MINIMUM, environment: Mapping[str, str] | None = None) -> str:
    """The path of a java of at least `minimum`; a ConfigError says what is missing."""
    environment = os.environ if environment is None else environment
    advice = f"install Java {minimum} or newer (Debian: openjdk-{minimum}-jre-headless)"
    path = _find_java(environment)
    if path is None and (home := environment.get("JAVA_HOME")):
        raise ConfigError(f"JAVA_HOME is {home}, which has no bin/java: unset it, or {advice}")
    if path is None:
        raise ConfigError(f"Java was not found: {advice}, or set JAVA_HOME to one")
    major = java_major(_ask_version(path))
    if major is None:
        raise ConfigError(f"{path} does not say which version it is: {advice}")
    if major < minimum:
        raise ConfigError(f"{path} is Java {major}, which is too old: {advice}")
    return path


def _find_java(environment: Mapping[str, str]) -> str | None:
    """As Spark's own launcher looks: JAVA_HOME first, then the PATH."""
    if home := environment.get("JAVA_HOME"):
        return shutil.which(os.path.join(home, "bin", "java"))
    return shutil.which("java", path=environment.get("PATH", ""))


def _ask_version(path: str) -> str:
    try:
        # It answers on stderr; stdout is read too, in case a vendor thinks otherwise.
        answer = subprocess.run(
            [path, "-version"],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout
