"""Identity: the author of an admin request and the role that applies."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal

import msgspec

RoleName = Literal["viewer", "editor", "admin"]
Mode = Literal["open", "session", "token", "local"]


class Role(IntEnum):
    """Role of an admin; each includes the rights of the roles below it."""

    VIEWER = 1
    EDITOR = 2
    ADMIN = 3

    @property
    def label(self) -> RoleName:
        """Name of the role in the API."""
        return _LABELS[self]

    @classmethod
    def of(cls, label: RoleName) -> Role:
        """Return the role with this name in the API."""
        return cls[label.upper()]


_LABELS: Final[dict[Role, RoleName]] = {Role.VIEWER: "viewer", Role.EDITOR: "editor", Role.ADMIN: "admin"}


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Author of a request to the admin listener."""

    name: str
    role: Role
    mode: Mode
    csrf_token: str | None = None
    """Token that a write of this session must repeat; None outside sessions."""


ANYBODY: Final = Identity(name="anybody", role=Role.VIEWER, mode="open")
"""Identity of every request to a gateway without admins, on a listener that only this machine reaches."""
LOCAL: Final = Identity(name="local", role=Role.ADMIN, mode="local")
"""Holder of the admin token in the runtime directory."""
SYSTEM: Final = Identity(name="system", role=Role.ADMIN, mode="local")
"""The gateway itself, where it changes something."""
