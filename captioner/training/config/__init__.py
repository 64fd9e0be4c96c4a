"""What a run is: its options, read from tables."""
