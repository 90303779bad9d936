"""What clients do to a cluster; each workload writes what `jepsen_like.history` says of it."""
