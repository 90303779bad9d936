"""A harness that breaks a Kafka-compatible cluster and judges, from outside, what held."""
