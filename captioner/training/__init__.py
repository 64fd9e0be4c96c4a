"""Training: data, features, objectives, checkpoints, export."""
