"""Apache Kafka's jars: the newest 4.x that Maven finds, in Maven's usual local repository.

What is kept here is one file with the class path, in the user's cache directory. It is good for as
long as every jar that it names is there; after that, or if it is removed, Maven is asked again.
One process asks at a time: Maven's local repository does not like two writers.
"""

import fcntl
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

JAVA_MIN = 17
FETCH_TIMEOUT_S = 540.0
_ANSWER_TIMEOUT_S = 30.0
_GROUP = "org.apache.kafka"
_ARTIFACT = "kafka_2.13"
_VERSIONS = "[4.0,5)"
# Kafka logs through slf4j's interface; without a writer behind it, a broker that dies is silent.
_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>kraftpy.bench</groupId>
  <artifactId>apache-kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{versions}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


class Unavailable(Exception):
    """Apache Kafka cannot be run here; the message says what is missing."""


def available() -> str | None:
    """Why Apache Kafka cannot be run here; None if it can. May fetch the jars: takes minutes."""
    try:
        class_path()
    except Unavailable as error:
        return str(error)
    return None


def class_path() -> tuple[str, ...]:
    """Every jar of the newest Kafka 4.x; fetched if that was not done yet. Unavailable if not."""
    found, reason = _outcome()
    if reason is not None:
        raise Unavailable(reason)
    return found


def version() -> str:
    """Which Kafka it is, such as 4.1.0."""
    return version_in(class_path())


def pom() -> str:
    return _POM.format(group=_GROUP, artifact=_ARTIFACT, versions=_VERSIONS)


def version_in(jars: tuple[str, ...]) -> str:
    pattern = re.compile(re.escape(_ARTIFACT) + r"-(\d[\w.]*)\.jar")
    for jar in jars:
        if match := pattern.fullmatch(os.path.basename(jar)):
            return match[1]
    raise Unavailable(f"the class path has no {_ARTIFACT}")


def java_version_in(text: str) -> int | None:
    """The feature release that `java -version` tells, such as 17."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def read_class_path(file: Path) -> tuple[str, ...] | None:
    """What was found last time, if all of it is still there."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    jars = tuple(text.split(os.pathsep)) if text else ()
    return jars if jars and all(os.path.isfile(jar) for jar in jars) else None


@functools.cache
def _outcome() -> tuple[tuple[str, ...], str | None]:
    """Asked once for each process: a registry that is out of reach costs minutes."""
    try:
        _check_java()
        return _find(), None
    except Unavailable as error:
        return (), str(error)


def _check_java() -> None:
    if shutil.which("java") is None:
        raise Unavailable(f"Java is missing: install version {JAVA_MIN} or newer")
    done = _run(["java", "-version"], _ANSWER_TIMEOUT_S)
    found = java_version_in(done.stderr + done.stdout)
    if found is None or found < JAVA_MIN:
        raise Unavailable(f"Apache Kafka 4 needs Java {JAVA_MIN} or newer, and this is {found}")


def _find() -> tuple[str, ...]:
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraftpy"
    place.mkdir(parents=True, exist_ok=True)
    file = place / "apache-kafka.class-path"
    if (found := read_class_path(file)) is not None:
        return found
    if shutil.which("mvn") is None:
        raise Unavailable("Maven is missing: install mvn")
    with open(place / "apache-kafka.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if read_class_path(file) is None:
            _fetch(file)
    if (found := read_class_path(file)) is None:
        raise Unavailable("Maven names jars that are not there")
    return found


def _fetch(file: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="kraftpy-maven-") as directory:
        project = Path(directory, "pom.xml")
        project.write_text(pom(), encoding="utf-8")
        out = Path(directory, "class-path")
        goal = ("dependency:build-classpath", f"-Dmdep.outputFile={out}")
        done = _run(["mvn", "--batch-mode", "--quiet", "--file", str(project), *goal])
        if done.returncode or not out.exists():
            raise Unavailable(f"Maven cannot get Apache Kafka: {_first_error(done.stdout)}")
        whole = file.with_suffix(".new")
        whole.write_text(out.read_text(encoding="utf-8"), encoding="utf-8")
        whole.replace(file)


def _run(
    command: list[str], timeout_s: float = FETCH_TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} did not end within {timeout_s:g} s") from None


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("[ERROR]")]
    return lines[0].removeprefix("[ERROR]").strip()[:200] if lines else "it does not say why"
