"""What a controller answers in Kafka's protocol, one module per subject."""
