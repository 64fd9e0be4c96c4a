"""Tools for assistants over the Model Context Protocol: captions, searches and overlays of photos."""
