"""PolicyRollout: puts revisions, canaries and members into force, and lets go of the deployments that left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from gateway.app.discovery.membership import Membership
from gateway.deployments.live import LiveDeployment
from gateway.machine.shared_counts import TableFull
from gateway.policies.canary import CanaryTrial
from gateway.policies.policy_file import PolicyRevision
from gateway.routing.snapshot import PolicyInForce, PolicySnapshot, SnapshotBuilder
from gateway.routing.trial import Trial
from gateway.telemetry.logs.log import LogWriter
from gateway.upstreams.reach import ReachError
from routing_policies.policy.document import Policy
from routing_policies.policy.members import is_member

_MEMBERS_RETRY_S: Final = 0.5
"""Time until members are put beside the others once more, where the shared counts had no row for them."""


class PolicyRollout:
    """The snapshot in force, its trial and its members; all of them change here and nowhere else."""

    def __init__(
        self,
        policy: PolicyInForce,
        builder: SnapshotBuilder,
        membership: Membership,
        *,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        probe_all: Callable[[], Coroutine[Any, Any, None]],
        apply_drains: Callable[[], None],
        log: LogWriter,
    ) -> None:
        """Put nothing into force yet.

        Args:
            policy: The snapshot that requests begin with.
            builder: Builder of further snapshots.
            membership: Known members of the policy's groups.
            spawn: Starts a task in the background.
            probe_all: Probes every deployment once.
            apply_drains: Marks the deployments that an admin drains, new ones among them.
            log: Log of members that cannot be put into force.
        """
        self._policy = policy
        self._builder = builder
        self._membership = membership
        self._spawn = spawn
        self._probe_all = probe_all
        self._apply_drains = apply_drains
        self._log = log
        self._canary: CanaryTrial | None = None
        self._members_retry: asyncio.TimerHandle | None = None

    @property
    def deployments(self) -> tuple[LiveDeployment, ...]:
        """Return the deployments in force, and members that drain."""
        return (*self.in_force, *self._builder.departures.members)

    @property
    def in_force(self) -> tuple[LiveDeployment, ...]:
        """Return the deployments of the snapshot and of the canary beside it, each once."""
        snapshot = self._policy.snapshot
        if snapshot is None:
            return ()
        beside = () if snapshot.trial is None else snapshot.trial.snapshot.deployments.values()
        return tuple(dict.fromkeys((*snapshot.deployments.values(), *beside)))

    def build(self, revision: PolicyRevision) -> PolicySnapshot:
        """Return the snapshot of a revision with the members known now. Raises ReachError; nothing has changed then."""
        members = self._membership.known(revision.policy)
        return self._builder.build(revision.policy, revision.revision, self._policy.snapshot, members)

    def put_in_force(self, snapshot: PolicySnapshot) -> None:
        """Let requests begin with the snapshot; `let_go` of the deployments before follows."""
        self._policy.snapshot = snapshot
        self._membership.follow([snapshot.document])

    def take_trial(self, policy: Policy | None, canary: CanaryTrial | None) -> None:
        """Put a canary beside what is in force, or take it away. Raises ReachError."""
        base, before = self._policy.current, self.in_force
        trial = None if policy is None or canary is None else self._trial_of(policy, canary, base)
        if trial is not base.trial:
            self._policy.snapshot, self._canary = replace(base, trial=trial), canary
            self._membership.follow([base.document] if policy is None else [base.document, policy])
            self.let_go(before)

    def take_members(self) -> None:
        """Put new members beside the others, and let those that are no longer listed drain."""
        self.call_off_retry()
        base = self._policy.snapshot
        if base is None:
            return
        before = self.in_force
        try:
            snapshot = self._builder.build(base.document, base.revision, base, self._membership.known(base.document))
            if base.trial is not None and self._canary is not None:
                trial = self._trial_of(base.trial.snapshot.document, self._canary, snapshot, base.trial)
                snapshot = replace(snapshot, trial=trial)
        except (ReachError, TableFull) as error:
            self._log.event("members_refused", level="error", error=str(error))
            if isinstance(error, TableFull):  # locked just now, or rows may become free
                self._members_retry = asyncio.get_running_loop().call_later(_MEMBERS_RETRY_S, self.take_members)
            return
        self._policy.snapshot = snapshot
        self._apply_drains()
        self.let_go(before)

    def let_go(self, before: tuple[LiveDeployment, ...]) -> None:
        """Let go of those deployments that nothing in force uses any more, and check all the others."""
        retained = self.in_force
        left = [deployment for deployment in before if deployment not in retained]
        for deployment in left:
            if is_member(deployment.id):
                self._builder.departures.note_left(deployment)
            else:
                deployment.has_left = True
                self._spawn(deployment.retire(), "retire")
        for deployment in left:  # once none of them is a place to move to
            deployment.move_streams()
        if before:
            self._spawn(self._probe_all(), "probe")

    def call_off_retry(self) -> None:
        """Call off another try to put members into force."""
        if self._members_retry is not None:
            self._members_retry.cancel()
            self._members_retry = None

    def _trial_of(
        self, policy: Policy, canary: CanaryTrial, base: PolicySnapshot, previous: Trial | None = None
    ) -> Trial:
        return self._builder.build_trial(
            policy,
            canary.revision,
            base,
            salt=canary.id,
            percent=canary.percent,
            tenants=canary.tenants,
            members=self._membership.known(base.document, policy),
            previous=previous,
        )
