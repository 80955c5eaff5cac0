"""What a person types. Thin: every command reads its flags, calls the package that does the work, and prints."""
