"""The harness against somebody else's software: pysyncobj as it is shipped, without our guard."""
