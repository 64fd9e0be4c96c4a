"""The weights of a run: where they start, how they are built, saved and averaged."""
