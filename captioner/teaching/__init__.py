"""From corrected captions to a model that was taught, and what teaching it changed."""
