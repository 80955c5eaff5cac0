"""What can go wrong between messages and prompt text."""

from __future__ import annotations

from legato.errors import LegatoError


class TemplateError(LegatoError):
    """A chat template does not compile, fails while rendering, or takes more than it may."""


class TemplateRefusalError(TemplateError):
    """A chat template called `raise_exception`: it works, and does not take these messages.

    Attributes:
        reason: The template's own words, shortened to a few hundred characters.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"This model's chat template refuses these messages: {reason}")
        self.reason = reason


class MessageError(LegatoError):
    """A request's messages are not messages that a model can be given.

    Attributes:
        param: Where in the request the trouble is, like `messages[2].content[0].type`.
    """

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message)
        self.param = param
