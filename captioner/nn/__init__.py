"""The networks, in PyTorch: encoders, attention, decoders.

Only nn, training, export and two commands import torch.
"""
