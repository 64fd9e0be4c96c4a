"""A model at work: its bundle, ONNX Runtime, caption search, vocabulary and confidence calibration."""
