"""The command line: `main` runs a command of `commands`, found by `parser`; the rest is what they share."""
