"""The settings of a server, and where their values come from."""
