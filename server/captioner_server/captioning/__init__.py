"""From the bytes of an image to its caption: decoding, batches, models."""
