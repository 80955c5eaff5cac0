"""The engine as the server holds it: submit a prompt, get a stream of events; workers come and go behind it."""
