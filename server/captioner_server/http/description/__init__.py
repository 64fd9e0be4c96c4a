"""The description of the API, also as a page, and hints for calls of unknown paths."""
