"""What a broker answers in Kafka's protocol, one module per subject."""
