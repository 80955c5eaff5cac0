"""Plain types that every room speaks of: no I/O, no llama.cpp, no web framework."""
