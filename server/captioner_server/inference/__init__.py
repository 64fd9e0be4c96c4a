"""Stubs generated from protos/inference by protos/generate.py.

They stay with the server: another package that brings its own copy of the Open Inference Protocol, as
tritonclient does, cannot be imported into the same process.
"""
