"""The command line: one file a command, each thin: parse, call, print."""
