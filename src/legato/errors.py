"""The error that people are meant to read."""

from __future__ import annotations


class LegatoError(Exception):
    """Something a person can mend.

    Its text is one sentence, or two, that says what was wrong and what would be right. The command line prints it
    without a traceback; the server puts it into its error body.
    """
