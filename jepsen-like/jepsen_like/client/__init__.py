"""A small Kafka client whose every request is one attempt, so that each outcome is known."""
