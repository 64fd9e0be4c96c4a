"""What a server is told: its settings, and where their values come from."""
