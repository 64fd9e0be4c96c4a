"""Captions over their photos: still and moving pictures, an interactive page, a gallery of a folder."""
