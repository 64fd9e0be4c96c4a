"""The words of labels and classes, and captions that contain them."""
