"""What is done to a cluster: faults, whom they hit, and how they are composed."""
