"""The command line: `main` finds and runs a command of `commands`; the rest is what they share."""
