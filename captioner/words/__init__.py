"""What is known of words: how text is split into them, English, and the names of things in data sets."""
