"""What a request asks, whatever its protocol: one image, and how its caption is to be told."""
