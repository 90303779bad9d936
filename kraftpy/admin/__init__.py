"""A node seen over HTTP: health, metrics, status, and a dashboard for people."""
