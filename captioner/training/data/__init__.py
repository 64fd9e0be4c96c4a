"""What a run learns from: examples, batches, cached features, augmentation."""
