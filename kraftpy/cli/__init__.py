"""The `kraftpy` command: one module per subcommand, loaded only when it is called."""
