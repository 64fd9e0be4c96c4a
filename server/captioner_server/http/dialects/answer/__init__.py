"""The text that answers a question: the caption, or what the prompt or the format ask for instead."""
