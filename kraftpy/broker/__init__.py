"""Brokers: they serve what the metadata log says is true."""
