"""A model's chat template: compiled once, rendered for each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from jinja2 import TemplateSyntaxError
from jinja2.environment import Template

from legato.chat import continuation
from legato.chat.budget import DEFAULT_LIMITS, Budget, Limits
from legato.chat.context import bounded
from legato.chat.errors import TemplateError, TemplateRefusalError
from legato.chat.rewrite import rewrite
from legato.chat.sandbox import ChatEnvironment
from legato.chat.weight import weigh

__all__ = ["ChatTemplate", "Limits", "TemplateError", "TemplateRefusalError"]

_LONGEST_SOURCE = 2**17
_HEAVIEST_INPUT = 2**30
_LONGEST_REASON = 300
_RESERVED = frozenset(("messages", "add_generation_prompt", "bos_token", "eos_token"))
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ChatTemplate:
    """A Jinja template from a model file, run in a sandbox with limits on its time and memory.

    It sees what Hugging Face's `apply_chat_template` gives it. An instance may render in several threads at a time.
    Rendering is plain computation of up to `Limits.seconds`: an event loop should leave it to a thread.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str, limits: Limits = DEFAULT_LIMITS) -> None:
        """Compiles the template.

        Args:
            source: The template's text, at most 131,072 characters.
            bos_token: The text of the token that begins a sequence; empty where the model has none.
            eos_token: The text of the token that ends one.
            limits: What one rendering may take.

        Raises:
            TemplateError: It does not compile, or wants what chat templates have no use for, like includes.
        """
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._limits = limits
        self._environment = ChatEnvironment()
        self._template = self._compile(source)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        now: datetime | None = None,
        extra: Mapping[str, Any] = _NOTHING,
    ) -> str:
        """Writes the prompt text for a conversation.

        Args:
            messages: The conversation, as `messages.read_messages` returns it.
            add_generation_prompt: Whether the text ends where the assistant's next answer begins. By default it does,
                unless `continue_final_message` is set.
            continue_final_message: Whether the text ends exactly behind the last message's content, which must be the
                assistant's, for the model to go on with.
            now: The time that the template is told, by default the local time.
            extra: More variables for the template, like `enable_thinking`. Plain data only.

        Returns:
            The prompt text. Templates that begin it with `bos_token` do so themselves.

        Raises:
            TemplateRefusalError: The template refuses the messages, like a system prompt that it has no place for.
            TemplateError: The template fails, or takes more time or memory than it may; or the arguments do not fit.
        """
        if continue_final_message and add_generation_prompt:
            raise TemplateError("add_generation_prompt and continue_final_message exclude each other; set one of them")
        if taken := sorted(_RESERVED.union(self._environment.globals).intersection(extra)):
            raise TemplateError(f"the template variable {taken[0]!r} cannot be set; it is the server's own")
        mark = ""
        given: Sequence[Mapping[str, Any]] = [dict(message) for message in messages]
        if continue_final_message:
            given, mark = continuation.mark(messages)
        variables = {
            "tools": None,
            "documents": None,
            **extra,
            **self._tokens,
            "messages": given,
            "add_generation_prompt": not continue_final_message and add_generation_prompt is not False,
        }
        text = self._run(variables, now or datetime.now())
        return continuation.cut(text, messages[-1]["content"], mark) if continue_final_message else text

    def _compile(self, source: str) -> Template:
        if len(source) > _LONGEST_SOURCE:
            raise TemplateError(f"this model's chat template is longer than {_LONGEST_SOURCE:,} characters")
        try:
            tree = self._environment.parse(source)
            rewrite(tree)
            return self._environment.from_string(tree)
        except TemplateError:
            raise
        except TemplateSyntaxError as error:
            reason = f"line {error.lineno}: {error.message}"
        except Exception as error:
            reason = _reason(error)
        raise TemplateError(f"this model's chat template does not compile: {reason[:_LONGEST_REASON]}")

    def _run(self, variables: dict[str, Any], now: datetime) -> str:
        context = bounded(self._template.new_context(variables))
        context.now = now
        context.budget = budget = Budget(self._limits, weigh(variables, _HEAVIEST_INPUT, lambda: None))
        pieces: list[str] = []
        length = 0
        try:
            for piece in self._template.root_render_func(context):
                pieces.append(piece)
                length += len(piece)
                budget.expect_text(length)
                budget.tick()
        except TemplateError:
            raise
        except Exception as error:
            raise TemplateError(f"this model's chat template fails{self._place(error)}: {_reason(error)}") from error
        return _valid("".join(pieces))

    def _place(self, error: Exception) -> str:
        line = 0
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals is self._template.root_render_func.__globals__:
                line = self._template.get_corresponding_lineno(trace.tb_lineno)
            trace = trace.tb_next
        return f" at line {line}" if line else ""


def _valid(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TemplateError("this model's chat template writes half of a surrogate pair, which is not text") from None
    return text


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    if isinstance(error, SyntaxError):
        return error.msg  # the line is one of the code that Jinja has made
    return " ".join(str(error)[:_LONGEST_REASON].split()) or type(error).__name__
