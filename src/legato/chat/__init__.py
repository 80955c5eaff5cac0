"""Messages to prompt text: requests checked, and the model's own chat template run as the untrusted code it is.

`messages` turns a request's messages into what templates take, `template` renders them, `builtin` has templates for
model files that carry none. Nothing here knows tokens, HTTP or the engine.
"""
