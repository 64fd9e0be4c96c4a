"""Who may enter: identifies callers, accepts or rejects calls, and bounds what they send."""
