"""Sections of settings: each refuses what cannot be, by its key."""

from __future__ import annotations

import pytest

from gateway.config.checks import ConfigError
from gateway.config.settings import AdminSettings, OidcSettings, PublicSettings
from tests.gateway.access.sign_in.test_oidc import CALLBACK


@pytest.mark.parametrize("address", ["0.0.0.0:9000", "[::]:9000", "10.1.2.3:9000", "gateway.internal:9000"])
def test_the_admin_listener_is_for_this_machine_by_default(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^listen: .* has no key of its own; listen on 127.0.0.1, or set allow_remo"):
        AdminSettings(listen=address)
    assert AdminSettings(listen=address, allow_remote=True).listen == address


@pytest.mark.parametrize("address", ["unix:/" + "x" * 107, "unix:/" + "é" * 54, "unix:", "unix:/a\0b"])
def test_a_listening_socket_whose_path_cannot_be_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^listen: "):
        PublicSettings(listen=address)
    PublicSettings(listen="unix:/" + "x" * 106)


@pytest.mark.parametrize("missing", ["client_id", "redirect_url"])
def test_half_a_provider_is_no_setting(missing: str) -> None:
    given = {"client_id": "c", "redirect_url": CALLBACK, missing: ""}
    with pytest.raises(ConfigError, match=r"^issuer: needs"):
        OidcSettings(issuer="https://i", **given)
