"""JSON schemas, filled with what is known of a photo by the names of their fields."""
