"""The commands, one module or folder each: it adds its parser, reads its flags, calls the library and prints.

`captioner.cli.parser` lists them, and imports only the one asked for.
"""
