"""Who comes next: callers take turns, each within its limits."""
