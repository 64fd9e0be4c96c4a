"""What the API says of itself: its description, as a page too, and hints for who is lost."""
