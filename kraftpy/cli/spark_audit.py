"""`spark-submit ... spark_audit.py PATH...`: `kraftpy audit --engine spark` as an application.

Spark wants a file to run. Its own flags (--master, --conf, --py-files) go before the file, those of
`kraftpy audit` behind it; the exit code is the audit's.
"""

import sys

from kraftpy.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["audit", "run", "--engine", "spark", *sys.argv[1:]]))
