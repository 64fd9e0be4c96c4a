"""Attention maps as pictures, and a caption with its maps in a notebook. Overlays are drawn with these."""
