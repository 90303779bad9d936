"""The simulated quorum with the real controller on top, asked by simulated brokers and admins."""
