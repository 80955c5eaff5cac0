"""The `legato` command."""


def main() -> None:
    """Run the command line."""
