"""Raft on pysyncobj's core, made safe at its extension points. See docs/adr/0005-raft.md."""
