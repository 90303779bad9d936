"""Metadata logs at rest: finding them, reading them, cutting them into parts."""
