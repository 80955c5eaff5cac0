"""`legato serve`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from legato.cli.console import out, print_error, say
from legato.cli.options import with_settings_options
from legato.settings import load_settings

if TYPE_CHECKING:
    from legato.runtime.client import ReadyState


@with_settings_options
def command(flags: dict[str, Any]) -> None:
    """Serve a model with OpenAI's API until Ctrl-C.

    Every option can also be set as LEGATO_NAME in the environment, or as name = value in legato.toml.
    """
    settings = load_settings(flags)
    logging.basicConfig(
        level=logging.INFO if settings.verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    # Imported here so that `legato --help` and mistakes in the settings are answered at once.
    from legato.models import check_gguf, default_store
    from legato.runtime.client import EngineState, FailedState, ReadyState
    from legato.server.run import listen, make_service, run_server

    listening = listen(settings)
    model = default_store().resolve(settings.model, progress=say)
    check_gguf(model.path)
    service = make_service(settings, model)
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    out.print(f"Loading {service.name} …", markup=False)

    def on_settled(state: EngineState) -> None:
        match state:
            case ReadyState():
                out.print(_ready_lines(service.name, url, state), markup=False, soft_wrap=True)
            case FailedState(reason=reason):
                print_error(f"{reason} The server stays up to say so; Ctrl-C ends it.")
            case _:
                pass

    run_server(settings, service, listening, on_settled)


def _ready_lines(name: str, url: str, state: ReadyState) -> str:
    model = state.model
    policy = f"chunked, {model.chunk} prompt tokens a step" if model.policy == "chunked" else model.policy
    return (
        f"Ready after {state.load_s:.1f} s: {name} ({model.description}) at {url}/v1\n"
        f"{model.parallel} answers at once, {model.context_tokens} tokens each; {model.threads} threads; {policy}.\n"
        "Talk to it: legato chat. Ctrl-C stops it."
    )
