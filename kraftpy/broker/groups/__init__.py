"""Consumer groups: machines that decide, on a log of __consumer_offsets that remembers."""
