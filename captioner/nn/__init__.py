"""The networks, in PyTorch: encoders, attention, decoders. Nothing outside nn and training imports torch."""
