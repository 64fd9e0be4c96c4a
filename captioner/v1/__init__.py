"""Stubs generated from protos/captioner/v1 by protos/generate.py."""
