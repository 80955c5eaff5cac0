"""Load generators for any server of OpenAI's API or Ollama's, and reports. Knows servers only by their HTTP API."""
