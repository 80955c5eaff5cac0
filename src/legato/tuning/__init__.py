"""Which settings suit this machine and this model: measured, chosen for a gap target, and remembered."""
