"""Captions over HTTP: the same model, limits, tokens and metrics as over gRPC, in the same process."""
