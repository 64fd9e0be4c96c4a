"""A model for captioner: the folder `bundle`, found by an entry point."""
