"""The HTTP server: OpenAI's API over the engine, and who may call it."""
