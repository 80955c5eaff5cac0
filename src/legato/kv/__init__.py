"""Which tokens' KV state lives where."""
