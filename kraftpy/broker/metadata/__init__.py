"""How a broker knows the cluster: its copy of the metadata log, and what is made of it."""
