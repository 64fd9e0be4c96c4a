"""The training loop: stages, losses, schedules, validation, reports."""
