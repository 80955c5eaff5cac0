"""`legato serve`."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from legato.cli.console import out, print_error, say, tell
from legato.cli.options import with_settings_options
from legato.settings import load_settings

if TYPE_CHECKING:
    from legato.client.status import Ready
    from legato.tuning.profile import Profile


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
    from legato.client.status import EngineStatus, Failed, Ready
    from legato.models import check_gguf, default_store
    from legato.server.engine_settings import uses_profile
    from legato.server.run import listen, make_service, run_server
    from legato.tuning.profile import default_profiles

    listening = listen(settings)
    model = default_store().resolve(settings.model, progress=say)
    check_gguf(model.path)
    profiles = default_profiles()
    profile = profiles.find_profile(model.path)
    used = profile if uses_profile(settings, profile) else None
    service = make_service(settings, model, profiles)
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    out.print(f"Loading {service.name} …", markup=False)

    def on_settled(state: EngineStatus) -> None:
        match state:
            case Ready():
                tell(ready_lines(service.name, url, state, settings.gap_target_ms, used))
            case Failed(reason=reason):
                print_error(f"{reason} The server stays up to say so; Ctrl-C ends it.")
            case _:
                pass

    run_server(settings, service, listening, on_settled)


def ready_lines(name: str, url: str, state: Ready, gap_target_ms: float, profile: Profile | None) -> str:
    """What a person is told when the model, called `name` by clients, is ready; the profile is one in use."""
    model = state.model
    details = {
        "adaptive": f", gaps of at most {gap_target_ms:g} ms",
        "chunked": f", {model.chunk} prompt tokens a step",
    }
    lines = [
        f"Ready after {state.load_s:.1f} s: {name} ({model.description}) at {url}/v1",
        f"{model.parallel} answers at once, {model.context_tokens} tokens each; {model.threads} threads; "
        f"{model.policy}{details.get(model.policy, '')}.",
    ]
    if profile is not None:
        day = time.strftime("%Y-%m-%d", time.localtime(profile.tuned_at))
        lines.append(f"Tuned on {day} for gaps of {profile.gap_target_s * 1000:g} ms.")
    lines.append("Talk to it: legato chat. Ctrl-C stops it.")
    return "\n".join(lines)
