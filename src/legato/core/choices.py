"""What settings choose between, by name."""

from __future__ import annotations

from typing import Literal

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
"""Number formats that KV state can be kept in."""
FlashAttention = Literal["auto", "on", "off"]
PolicyName = Literal["adaptive", "chunked", "whole"]
CacheScope = Literal["server", "key", "off"]
"""Whose remembered prompts a request may begin with: everybody's, those of its own API key, nobody's."""
