"""What the names of API keys stand for."""

from __future__ import annotations

from typing import Any

import pytest

from legato.server.api_error import ApiError
from legato.server.clients import Clients
from legato.settings import Settings

KEYS = {"api_keys": ("ana=1", "ben=2", "cai=3", "4")}


def clients(**settings: Any) -> Clients:
    return Clients.of(Settings(**settings))


def test_a_background_client_can_ask_for_nothing_else() -> None:
    known = clients(**KEYS, background_clients=("ben",))
    assert known.service_tier("ben", "default") == "flex"
    assert known.service_tier("ben", "flex") == "flex"
    for other in ("ana", None):
        assert known.service_tier(other, "default") == "default"
        assert known.service_tier(other, "flex") == "flex"


def test_a_requests_own_target_goes_before_its_keys_and_that_before_the_servers() -> None:
    known = clients(**KEYS, gap_targets=("ana=50",))
    assert known.gap_target_s("ana", 20.0) == 0.02
    assert known.gap_target_s("ben", 20.0) == 0.02
    assert known.gap_target_s(None, 20.0) == 0.02
    assert known.gap_target_s("ana", None) == 0.05
    assert known.gap_target_s("ben", None) is None
    assert known.gap_target_s(None, None) is None


def refusal(known: Clients, client: str | None) -> str:
    with pytest.raises(ApiError) as caught:
        known.check_admin(client)
    assert (caught.value.status_code, caught.value.code) == (403, "not_admin")
    assert caught.value.message.endswith(".")
    return caught.value.message


def test_where_there_are_keys_admins_alone_may_change_settings() -> None:
    known = clients(**KEYS, admins=("ana",))
    known.check_admin("ana")
    for other in ("ben", None):
        assert "--admin NAME" in refusal(known, other)
    assert "--admin NAME" in refusal(clients(**KEYS), "ana")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_without_keys_whoever_is_on_this_machine_may(host: str) -> None:
    clients(host=host).check_admin(None)


def test_without_keys_nobody_may_who_comes_over_the_network() -> None:
    sentence = refusal(clients(host="0.0.0.0", no_auth=True), None)
    assert "--admin NAME" in sentence
    assert "--api-key" in sentence


def test_an_admin_may_over_the_network_too() -> None:
    clients(**KEYS, host="0.0.0.0", admins=("ana",)).check_admin("ana")
