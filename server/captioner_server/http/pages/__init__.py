"""Pages for a browser: the demo, galleries, and the files of both."""
