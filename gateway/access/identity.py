"""Identity: who makes an admin request, and what that person may do."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal

import msgspec

RoleName = Literal["viewer", "editor", "admin"]
Mode = Literal["open", "session", "token", "local"]


class Role(IntEnum):
    """Each may do what the one below may."""

    VIEWER = 1
    EDITOR = 2
    ADMIN = 3

    @property
    def label(self) -> RoleName:
        """As the API says it."""
        return _LABELS[self]

    @classmethod
    def of(cls, label: RoleName) -> Role:
        """From what the API says."""
        return cls[label.upper()]


_LABELS: Final[dict[Role, RoleName]] = {Role.VIEWER: "viewer", Role.EDITOR: "editor", Role.ADMIN: "admin"}


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody at the admin listener."""

    name: str
    role: Role
    mode: Mode
    csrf_token: str | None = None
    """What a write of this session has to repeat."""


ANYBODY: Final = Identity(name="anybody", role=Role.VIEWER, mode="open")
"""Of a gateway that has no admins yet, on a listener that only this machine reaches."""
SYSTEM: Final = Identity(name="system", role=Role.ADMIN, mode="local")
"""The gateway itself, where it changes something."""
