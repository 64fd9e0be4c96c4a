"""From a checkpoint to a bundle: ONNX graphs, checks against the network, INT8, scores."""
