"""What people open in a browser: the page, galleries, and how their files are sent."""
