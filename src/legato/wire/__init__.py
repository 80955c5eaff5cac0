"""What the server process and an engine worker say to each other, and how it travels."""
