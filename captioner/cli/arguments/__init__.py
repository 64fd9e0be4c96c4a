"""Flags that several commands share, and what they ask for.

Each command reads its flags into a frozen request at once; nothing below sees an `argparse.Namespace`.
"""
