"""Commands over a socket."""

from __future__ import annotations

import socket

import pytest

from engine.tensor_parallel.commands import (
    Command,
    Forward,
    LeaderGoneError,
    Logits,
    OpenPool,
    receive_command,
    send_command,
)


@pytest.mark.parametrize("command", [OpenPool(7), Forward([0, 1], [9], 3), Logits(2)])
def test_commands_arrive_as_they_were_sent_and_an_end_is_reported(command: Command) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            send_command(ours, command)
            assert receive_command(theirs) == command
        with pytest.raises(LeaderGoneError):
            receive_command(theirs)
