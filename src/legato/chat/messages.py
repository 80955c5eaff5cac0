"""What people send: a request's messages, checked and brought into the one form that chat templates take."""

from __future__ import annotations

from typing import Any

from legato.chat.message_error import MessageError

MOST_MESSAGES = 10_000

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TOOL_ROLES = ("tool", "function")
_TOOL_KEYS = ("tool_calls", "function_call")
_TEXTLESS_KEYS = ("refusal", "audio")
# What servers put into answers and clients send back with them; without a value it says nothing.
_ANSWER_KEYS = (*_TOOL_KEYS, *_TEXTLESS_KEYS, "annotations")
_KEYS = ("role", "content", "name")
_MEDIA_PARTS = ("image", "image_url", "input_image", "input_audio", "audio_url", "video_url", "file", "input_file")


def read_messages(value: object, *, param: str = "messages") -> list[dict[str, str]]:
    """Reads OpenAI-style chat messages from parsed JSON.

    The role `developer` becomes `system`. A content that is a list of text parts becomes one text, with a line break
    between the parts, as llama-server has it. Keys of an assistant's answer that are null or empty (`tool_calls`,
    `function_call`, `refusal`, `audio`, `annotations`) are dropped, since clients send answers back as they got them.
    Texts are left as they are, control characters included.

    `param` is the name of the list in the request. A message is read as `role`, `content` and, where given, `name`.

    Raises:
        MessageError: Anything else, with the place in the request.
    """
    if not isinstance(value, list):
        raise MessageError(f"{param} must be a list of messages", param=param)
    if not value:
        raise MessageError(f"{param} is empty; it needs at least one message", param=param)
    if len(value) > MOST_MESSAGES:
        raise MessageError(f"{param} has {len(value):,} messages; at most {MOST_MESSAGES:,} are read", param=param)
    return [_read_message(message, f"{param}[{index}]") for index, message in enumerate(value)]


def _read_message(message: object, param: str) -> dict[str, str]:
    if not isinstance(message, dict):
        raise MessageError(f"{param} must be an object with role and content", param=param)
    role = _read_role(message, param)
    for key in message:
        if key not in _KEYS:
            _check_other_key(key, message[key], role, param)
    read = {"role": role, "content": _read_content(message, param)}
    if message.get("name") is not None:
        read["name"] = _read_text(message["name"], f"{param}.name")
    return read


def _read_role(message: dict[Any, Any], param: str) -> str:
    param = f"{param}.role"
    role = message.get("role")
    if role in _TOOL_ROLES:
        raise MessageError("tool calls are not supported yet; leave messages of tools out", param=param)
    if not isinstance(role, str) or role not in _ROLES:
        said = f"not {_quote(role)}" if "role" in message else "and is missing"
        raise MessageError(f"{param} must be one of {', '.join(_ROLES)}, {said}", param=param)
    return _ROLES[role]


def _check_other_key(key: object, value: object, role: str, param: str) -> None:
    if not isinstance(key, str) or key not in _ANSWER_KEYS or role != "assistant":
        raise MessageError(
            f"{param} has an unknown key {_quote(key)}; a message has {', '.join(_KEYS)}", param=_child(param, key)
        )
    if value is None or value == [] or key == "annotations":
        return
    if key in _TOOL_KEYS:
        raise MessageError("tool calls are not supported yet; leave them out of the messages", param=f"{param}.{key}")
    raise MessageError(f"{param}.{key} is not text; put what the assistant said into content", param=f"{param}.{key}")


def _read_content(message: dict[Any, Any], param: str) -> str:
    param = f"{param}.content"
    content = message.get("content")
    if content is None:
        raise MessageError(f"{param} is missing; it must be text or a list of text parts", param=param)
    if not isinstance(content, list):
        return _read_text(content, param)
    if not content:
        raise MessageError(f"{param} is an empty list; it needs at least one text part", param=param)
    return "\n".join(_read_part(part, f"{param}[{index}]") for index, part in enumerate(content))


def _read_part(part: object, param: str) -> str:
    if not isinstance(part, dict):
        raise MessageError(f'{param} must be an object like {{"type": "text", "text": "..."}}', param=param)
    kind = part.get("type")
    if isinstance(kind, str) and kind in _MEDIA_PARTS:
        raise MessageError(f"this model reads text only, not {kind}", param=f"{param}.type")
    if kind != "text":
        raise MessageError(f'{param}.type must be "text", not {_quote(kind)}', param=f"{param}.type")
    for key in part:
        if key not in ("type", "text"):
            raise MessageError(
                f"{param} has an unknown key {_quote(key)}; a text part has type and text", param=_child(param, key)
            )
    return _read_text(part.get("text"), f"{param}.text")


def _read_text(value: object, param: str) -> str:
    if not isinstance(value, str):
        raise MessageError(f"{param} must be text, not {_quote(value)}", param=param)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise MessageError(
            f"{param} has half of a surrogate pair at character {error.start}, which is not text; send valid Unicode",
            param=param,
        ) from None
    return value


def _child(param: str, key: object) -> str:
    return f"{param}.{key}" if isinstance(key, str) and key.isidentifier() and len(key) <= _LONGEST_QUOTE else param


_LONGEST_QUOTE = 60


def _quote(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value) if not isinstance(value, str) else ascii(value[:_LONGEST_QUOTE])
    return text[:_LONGEST_QUOTE]
