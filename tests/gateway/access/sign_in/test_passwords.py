"""Checks of passwords: a bounded line, with places for known devices."""

from __future__ import annotations

import asyncio

import pytest

from gateway.access.sign_in.passwords import MAX_WAITING, Passwords, PasswordsBusy
from tests.gateway.admin.handlers.sign_in.test_login import WRONG
from tests.gateway.admin.test_access import PASSWORD


async def test_checks_of_passwords_wait_in_a_bounded_line_with_places_for_known_devices() -> None:
    passwords = Passwords()
    stored = await passwords.hash(PASSWORD)
    await passwords._turn.acquire()
    strangers = [asyncio.create_task(passwords.is_right(None, WRONG)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(PasswordsBusy):
        await passwords.is_right(stored, PASSWORD)
    known = asyncio.create_task(passwords.is_right(stored, PASSWORD, is_known=True))
    await asyncio.sleep(0)
    for task in strangers:
        task.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)
    with pytest.raises(PasswordsBusy):  # who has left still has a check to be made
        await passwords.is_right(stored, PASSWORD)
    passwords._turn.release()
    assert await known
    assert await passwords.is_right(stored, PASSWORD)
