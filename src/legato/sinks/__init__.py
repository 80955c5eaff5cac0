"""Where measures go: the history on disk, Prometheus, collectors of spans; and what the machine itself says."""
