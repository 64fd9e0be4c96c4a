"""The gRPC side: calls, messages, health and reflection."""
