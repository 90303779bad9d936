"""Which versions of which clients are tested, and the names they are recorded under.

Python's are those of requirements/test.lock; the others are named here, kcat is Debian's.
"""

import re
import shutil
import subprocess
from importlib.metadata import version

JAVA = "4.4.0"
KAFKAJS = "2.2.4"
FRANZ_GO = "1.22.2"

# Recorded name (a client id): what it is called where it comes from.
PYTHON = {
    "confluent-kafka": "confluent-kafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
}
OTHERS = {"java": JAVA, "kafkajs": KAFKAJS, "franz-go": FRANZ_GO}
KCAT = "kcat"


def tested_versions() -> dict[str, str]:
    """Client to version, of all that can be run here."""
    found = {name: version(package) for name, package in PYTHON.items()}
    if shutil.which(KCAT):
        done = subprocess.run([KCAT, "-V"], capture_output=True, text=True, check=False)
        match = re.search(r"Version (\S+).*librdkafka ([0-9.]+)", done.stdout, re.DOTALL)
        found[KCAT] = f"{match[1]} (librdkafka {match[2]})" if match else "unknown"
    return {**found, **OTHERS}
