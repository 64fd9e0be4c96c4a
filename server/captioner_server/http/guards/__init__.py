"""Checks before every call: the length of its body, the name of the server, and the page that calls."""
