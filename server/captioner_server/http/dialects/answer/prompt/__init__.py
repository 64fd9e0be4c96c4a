"""What a prompt asks for: in words, and by the JSON that it shows."""
