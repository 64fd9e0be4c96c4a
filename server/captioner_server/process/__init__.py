"""The process of the server: its variables, open files and memory."""
