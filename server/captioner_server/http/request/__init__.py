"""The image and the options of a request, read within limits."""
