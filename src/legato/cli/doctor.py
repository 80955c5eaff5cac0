def command() -> None:
    """Check."""
