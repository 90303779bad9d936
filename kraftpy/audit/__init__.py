"""What recorded metadata logs must keep to, and who checks it."""
