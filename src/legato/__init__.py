"""Legato: a local LLM server that reads prompts and writes answers as the two different jobs they are."""

__version__ = "0.1.0"
