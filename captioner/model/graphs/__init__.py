"""A model's graphs in ONNX Runtime: their check, their cache, devices, and the decoder's step."""
