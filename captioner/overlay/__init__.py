"""Captions over their photos: stills, animations, an interactive page, a gallery, notebooks and terminals."""
