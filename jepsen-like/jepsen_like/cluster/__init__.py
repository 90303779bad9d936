"""The cluster under test: processes, the proxy between them, and what nodes let be done to them."""
