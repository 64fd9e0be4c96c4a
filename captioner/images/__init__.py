"""Images: opening any supported file as upright sRGB pixels, finding files by name, letterboxing."""
