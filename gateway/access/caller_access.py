"""CallerAccess: whether callers need an API key, and whether anybody would be left who may call."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.access.api_keys import StoredKey, StoredKeys
from gateway.access.key_width import with_callers
from routing_policies.policy.document import Policy
from routing_policies.proof.findings import Proof


class CallerAccessState(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for the admin page."""

    is_required: bool
    """True if a request without a key is refused."""
    num_usable: int
    """Number of keys that a caller can use now."""
    why_required: str | None
    """Reason why programs on this machine cannot be let in without a key; None where an admin may decide it."""


class CallerAccess:
    """Callers that the keys of the store and of the policy in force let in."""

    def __init__(self, keys: StoredKeys, policy: Callable[[], Policy]) -> None:
        self._keys = keys
        self._policy = policy

    @property
    def state(self) -> CallerAccessState:
        """Return the present state."""
        policy = self._policy()
        return CallerAccessState(
            is_required=self.is_required(policy), num_usable=self.num_usable(policy), why_required=self._why(policy)
        )

    def is_required(self, policy: Policy | None = None) -> bool:
        """Return whether a request without a key is refused under a policy; None: the one in force."""
        policy = policy or self._policy()
        return policy.has_keys or self._keys.are_required

    def num_usable(self, policy: Policy | None = None, *, without: StoredKey | None = None) -> int:
        """Return the number of keys that identify a tenant of the policy, `without` not counted."""
        policy = policy or self._policy()
        tenants = {tenant.id for tenant in policy.tenants}
        written = sum(len(tenant.keys) for tenant in policy.tenants)
        stored = (key for key in self._keys.all() if key.tenant in tenants and self._keys.is_usable(key))
        return written + sum(key != without for key in stored)

    def without_tenant(self) -> list[StoredKey]:
        """Return the keys that would work if the policy in force had their tenants."""
        tenants = {tenant.id for tenant in self._policy().tenants}
        return [key for key in self._keys.all() if key.tenant not in tenants and self._keys.is_usable(key)]

    def locks_out(self, policy: Policy) -> bool:
        """Return whether the policy would leave nobody who may call, although there is somebody now."""
        if not self.is_required(policy) or self.num_usable(policy):
            return False
        return not self.is_required() or self.num_usable() > 0

    def with_callers(self, proof: Proof, policy: Policy) -> Proof:
        """Return the proof of a policy with the violations of its callers, those with keys of the store included."""
        return with_callers(proof, policy, self._keys)

    def _why(self, policy: Policy) -> str | None:
        if policy.has_keys:
            return "the policy has keys"
        return "other machines reach this gateway's listeners" if self._keys.is_exposed else None
