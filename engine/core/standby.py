"""A core that is not needed yet: it has loaded what takes long, and waits for the front's word."""

from __future__ import annotations

from engine.config import CoreConfig
from engine.core.inbox import Inbox
from engine.core.outbox import Outbox
from engine.protocol import Shutdown, StandingBy, TakeOver


class StandbyEnded(Exception):
    """The front stopped a standby that was never needed."""


class Standby:
    """The gate in a standby's start-up."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox = inbox
        self._outbox = outbox

    def wait(self, config: CoreConfig) -> CoreConfig:
        """Wait until the front orders a takeover; return the configuration with the pool size of the previous core.

        Raises:
            StandbyEnded: The front stops the standby instead.
            FrontGoneError: The front is gone.
        """
        self._outbox.send(StandingBy())
        while True:
            for message, _ in self._inbox.drain(wait=True):
                if isinstance(message, TakeOver):
                    return config.changed(num_blocks=message.num_blocks or config.kv.num_blocks)
                if isinstance(message, Shutdown):
                    raise StandbyEnded
