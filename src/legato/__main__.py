"""`python -m legato` is the `legato` command."""

from legato.cli.main import main

main()
