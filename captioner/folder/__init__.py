"""Folder runs: caption whole folders and archives of images, resumably."""
