"""kraftpy: a Kafka-compatible cluster whose metadata lives in a Raft-replicated log."""

__version__ = "0.1.0"
