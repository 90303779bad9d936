"""Checkers: each judges a history by one promise, and argues in its docstring why it may."""
