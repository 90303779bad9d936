"""For every rule a fault among a million good records: `make audit-proof`."""
