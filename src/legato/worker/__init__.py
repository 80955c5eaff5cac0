"""The engine worker: a process of its own that loads a model and runs the engine's loop."""
