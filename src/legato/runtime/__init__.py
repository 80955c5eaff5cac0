"""The engine's loop, over protocols for what it runs on: a clock, an engine, a store of KV state, a mailbox."""
