"""Whole folders and archives of images: which are left, who captions them, what is written."""
