"""INT8 versions of the float32 graphs."""
