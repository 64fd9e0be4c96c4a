"""A model at inference: its bundle, ONNX Runtime, caption search, vocabulary and confidence calibration."""
