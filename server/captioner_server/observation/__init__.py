"""What the server reports: logs, metrics and traces of calls."""
