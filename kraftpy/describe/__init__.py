"""Answers that an image alone gives, whoever holds it: a controller or a broker. Pure."""
