"""A model at inference: its bundle, graphs, caption search, vocabulary and confidence calibration."""
