"""What this process may use of the machine: its cores and its memory, as containers and services limit it."""
