"""ControlPlane: what admins change while all runs: the policy's revisions, keys, admins, and the log of it all."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args
from urllib.parse import urlsplit

from gateway.access.audit_log import AuditBroken, AuditEntry, AuditLog
from gateway.access.caller_access import CallerAccess
from gateway.access.directory import Directory
from gateway.access.file_token import FileToken
from gateway.access.identity import SYSTEM
from gateway.access.local_copy import KEYS_FILE
from gateway.access.local_peers import LocalPeers
from gateway.access.local_token import LocalToken
from gateway.access.restored import Restored
from gateway.access.sign_in.failed_logins import FailedLogins
from gateway.access.sign_in.login_links import LoginLinks
from gateway.access.sign_in.passwords import Passwords
from gateway.access.sign_in.sessions import Sessions
from gateway.admin.api.gate import AdminGate
from gateway.admin.api.request import AdminEndpoint, endpoints_of
from gateway.admin.handlers.accounts import AccountHandlers
from gateway.admin.handlers.audit import AuditHandlers
from gateway.admin.handlers.canary import CanaryHandlers
from gateway.admin.handlers.key_requirement import KeyRequirementHandlers
from gateway.admin.handlers.keys import KeyHandlers
from gateway.admin.handlers.plan import PlanHandlers
from gateway.admin.handlers.policy import PolicyHandlers
from gateway.admin.handlers.sign_in.local import LocalSignInHandlers
from gateway.admin.handlers.sign_in.login import OIDC_START, LoginHandlers, SignIn
from gateway.admin.handlers.tenants import TenantHandlers
from gateway.api.json_bodies import JsonBodies
from gateway.app.policy_acceptance import policy_checks
from gateway.app.runtime import Runtime
from gateway.cache.audit.audit_record import AuditRecord
from gateway.config.checks import ConfigError
from gateway.config.exposure import exposure_problem
from gateway.config.settings import GatewayConfig
from gateway.limits.body_budget import BodyBudget
from gateway.policies.canaries import Canaries, OnTrial
from gateway.policies.canary import CanaryTrial
from gateway.policies.last_day import LastDay
from gateway.policies.local_copy import COPY_FILE, PolicyCopy, file_copy_name
from gateway.policies.policy_file import PolicyFile
from gateway.policies.reading import DocumentReader, PolicyChecks, PolicyHooks
from gateway.policies.revision import Revision
from gateway.policies.seed import Seed
from gateway.policies.source import PolicySource
from gateway.policies.stored import StoredPolicy
from gateway.routing.sampling import RecordingSampler
from gateway.routing.snapshot import PolicyInForce
from gateway.store.base import Store, StoreUnavailable
from gateway.telemetry.records.answer_log import AnswerEnd, AnswerLog
from gateway.telemetry.records.answer_record import SEED_BITS
from gateway.telemetry.records.recent import RouteTraffic
from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.records.recording_expiry import RecordingExpiry
from gateway.telemetry.records.segments import Segments
from gateway.telemetry.records.tape import Tape
from gateway.util.doubling_pauses import Keep
from gateway.util.workers import Workers
from routing_policies.quality.predictor import Predictors

if TYPE_CHECKING:
    from gateway.access.sign_in.oidc import Oidc

_MAX_LONG_BODIES: Final = 8
_RESTORED: Final = "the store came back without them, or as they were before"


class ControlPlane:
    """The parts of the control plane; they share one connection to the store that no request waits for."""

    def __init__(
        self,
        config: GatewayConfig,
        runtime: Runtime,
        store: Store,
        *,
        environment: Mapping[str, str],
        predictors: Predictors,
        policy: PolicyInForce,
        hooks: PolicyHooks,
        on_trial: OnTrial,
    ) -> None:
        """Assemble the parts; the caller closes `store`.

        `environment` has the keys and secrets that policy and settings name.
        """
        wall, holder = runtime.wall, runtime.holder
        self._config = config
        self._log = runtime.log
        self._in_force = lambda: policy.current.policy
        self._ids = runtime.ids
        self._wall = wall
        self._workers = Workers(1, name="admin", max_waiting=_MAX_LONG_BODIES)
        """A thread of its own: long chat bodies do not delay the admin listener, nor its bodies theirs."""
        self.audit = AuditLog(store, wall=wall, on_append=self._note_change)
        self.directory = self._make_directory(store)
        self.traffic = RouteTraffic(wall)
        self.last_day = LastDay(self.traffic, store, holder=holder, wall=wall)
        self.token = LocalToken(config.process.runtime_dir)
        self._admin_token = _token_file("token_file", config.admin.token_file)
        self._metrics_token = _token_file("metrics_token_file", config.admin.metrics_token_file)
        self._failed_logins = FailedLogins(store, wall)
        token = self._admin_token or self.token
        self._sessions = Sessions(store, self.directory.accounts, wall, token=token)
        self._links = LoginLinks(store, token)
        self.access = CallerAccess(self.directory.keys, self._in_force)
        self._oidc = _oidc(config, store, environment, wall)
        checks = policy_checks(config, environment, predictors, has_stored_keys=lambda: bool(self.directory.keys))
        reader = DocumentReader(checks)
        hooks = replace(hooks, on_restored=self._note_restored)
        self.file = self._make_file(checks, hooks)
        self.stored = self._make_stored(store, reader, hooks) if config.policy.is_in_store else None
        self.canaries = None if self.stored is None else self._make_canaries(store, self.stored, runtime, on_trial)
        self.tape = _tape(config, holder, wall)
        self.answer_log = _answer_log(config, runtime)
        """Recorded answers; None where none are recorded."""
        self.sampler = self._make_sampler(predictors, runtime.rng)
        """The pipeline's sampler of recorded requests; None where nothing is recorded."""
        self.source = PolicySource(self.stored or self.file, reader=reader, in_force=self._in_force)

    def _make_directory(self, store: Store) -> Directory:
        log = self._log
        directory = Directory(
            store,
            self._wall,
            copy=self._config.process.runtime_dir / KEYS_FILE,
            on_restored=self._note_access_restored,
            on_ignored=lambda path: log.event("access_copy_ignored", level="warning", path=str(path)),
            on_unreadable=lambda name, error: log.failure("access_unreadable", error, record=name),
        )
        if exposure_problem(self._config) is not None:
            directory.keys.expose()
        return directory

    def _make_file(self, checks: PolicyChecks, hooks: PolicyHooks) -> PolicyFile:
        settings = self._config.policy
        return PolicyFile(
            settings.document,
            checks=checks,
            hooks=hooks,
            poll_s=settings.poll_s,
            copy=None if settings.is_in_store else self._local_copy(file_copy_name(settings.document)),
        )

    def _make_stored(self, store: Store, reader: DocumentReader, hooks: PolicyHooks) -> StoredPolicy:
        """Create the policy of the store; its seed is the document of the settings."""
        settings = self._config.policy
        return StoredPolicy(
            store,
            reader=reader,
            seed=Seed(path=settings.document, is_bundled=settings.is_bundled),
            copy=self._local_copy(COPY_FILE),
            hooks=hooks,
            wall=self._wall,
            num_saved=settings.max_revisions,
        )

    def _make_canaries(self, store: Store, stored: StoredPolicy, runtime: Runtime, on_trial: OnTrial) -> Canaries:
        return Canaries(
            store,
            stored,
            self.audit,
            holder=runtime.holder,
            on_trial=on_trial,
            report=lambda error: self._log.failure("canary_failed", error),
            clock=runtime.clock,
            new_id=lambda: f"c{secrets.token_hex(5)}",
        )

    def _make_sampler(self, predictors: Predictors, rng: random.Random) -> RecordingSampler | None:
        if self.tape is None:
            return None
        draw_seed = None if self.answer_log is None else lambda: rng.getrandbits(SEED_BITS)
        return RecordingSampler(self.tape, predictors, draw_seed)

    async def load(self) -> None:
        """Load keys, admins and the policy.

        Raises:
            PolicyFileError: The policy file cannot be used.
            OSError: The settings want a recording, and it cannot be opened.
        """
        try:
            if self._admin_token is None:
                self.token.ensure()
        except (OSError, ValueError) as error:  # served all the same; changes then take a login
            self._log.event("admin_token_missing", level="warning", error=str(error))
        if self.tape is not None:
            self.tape.open()
        if self.answer_log is not None:
            self.answer_log.open()
        with suppress(StoreUnavailable):  # the log has it; keys of the last time are read instead
            await self.directory.load()
        if self.stored is not None:
            await self.stored.load()
        else:
            self.file.load()

    def start(self, keep: Keep) -> None:
        """Start the tasks that refresh all parts until they are cancelled; call it after `load`."""
        keep(self.file.watch if self.stored is None else self.stored.watch, "policy")
        keep(self.directory.run, "access")
        if self.tape is not None:
            keep(self.tape.run, "tape")
        if self.answer_log is not None:
            keep(self.answer_log.run, "answer_log")
        keep(self._expiry().run, "recording_expiry")
        if self.canaries is not None:
            keep(self.canaries.run, "canaries")
        keep(self.last_day.run, "last_day")

    def _expiry(self) -> RecordingExpiry:
        """Return the expiry of the recordings that an earlier process left and this one adds nothing to."""
        process, log = self._config.process, self._log
        written = ((process.recording_dir, self.tape), (process.answers_dir, self.answer_log))
        return RecordingExpiry(
            [folder for folder, recorder in written if recorder is None],
            retention_s=self._config.telemetry.recorder.retention_h * 3600.0,
            wall=self._wall,
            on_failure=lambda error: log.failure("recording_not_deleted", error),
        )

    async def look(self) -> None:
        """Check for a new policy at once."""
        if self.stored is None:
            await self.file.look()
            return
        with suppress(StoreUnavailable):  # as in `watch`
            await self.stored.catch_up()

    async def flush(self) -> None:
        """Write out the state that other processes need before this process ends."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        if self.tape is not None:
            await asyncio.to_thread(self.tape.flush)
        if self.answer_log is not None:
            await asyncio.to_thread(self.answer_log.flush)
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(0.5):
                await self.last_day.publish()

    def bodies(self, budget: BodyBudget) -> JsonBodies:
        """Return what reads the admin listener's bodies within the budget."""
        return JsonBodies(budget, self._workers)

    def gate(self) -> AdminGate:
        """Return what decides who may use the admin listener."""
        return AdminGate(
            self.directory,
            self._sessions,
            self._admin_token or self.token,
            _local_peers(self._config),
            metrics_token=self._metrics_token,
        )

    def endpoints(self, gate: AdminGate) -> list[AdminEndpoint]:
        """Return its part of the admin listener behind the gate."""
        directory, audit, wall = self.directory, self.audit, self._wall
        passwords = Passwords()
        admin = self._config.admin
        is_secure = admin.tls_files is not None or admin.oidc.redirect_url.startswith("https://")
        login = LoginHandlers(
            gate,
            SignIn(
                accounts=directory.accounts,
                sessions=self._sessions,
                passwords=passwords,
                failed_logins=self._failed_logins,
            ),
            audit,
            wall=wall,
            oidc_start=None if self._oidc is None else OIDC_START,
            is_secure=is_secure,
        )
        local = LocalSignInHandlers(gate, self._links, self._sessions, audit, login, clock=time.monotonic)
        policy = PolicyHandlers(self.source, audit, self.last_day, self.access, canary=self._running_canary)
        canaries = CanaryHandlers(self.source, policy, self.canaries)
        requirement = KeyRequirementHandlers(directory, audit, self.access)
        keys = KeyHandlers(directory, audit, self.access, requirement, policy=self._in_force, wall=wall)
        accounts = AccountHandlers(directory, passwords, audit, wall=wall)
        tenants = TenantHandlers(self.source, policy, directory, self.last_day)
        handlers: list[object] = [
            login,
            local,
            policy,
            canaries,
            PlanHandlers(self.source, policy, self._config, self.tape),
            tenants,
            requirement,
            keys,
            accounts,
            AuditHandlers(audit),
        ]
        if self._oidc is not None:
            from gateway.admin.handlers.sign_in.oidc import OidcHandlers  # as in `_oidc`

            handlers.append(
                OidcHandlers(self._oidc, directory.accounts, login, clock=time.monotonic, is_secure=is_secure)
            )
        return endpoints_of(*handlers)

    def watchers(self) -> tuple[Callable[[RequestRecord], None], ...]:
        """Return the callbacks for finished requests."""
        canaries = () if self.canaries is None else (self.canaries.note,)
        return (self.traffic.note, *canaries, *(() if self.tape is None else (self.tape.note,)))

    def note_wrong(self, request_id: str, tenant: str) -> bool:
        """Return whether a product's verdict on an answer counts for a running canary, or was recorded."""
        is_recorded = self.tape is not None and self.tape.note_wrong(request_id, tenant)
        return (self.canaries is not None and self.canaries.note_wrong(request_id, tenant)) or is_recorded

    def note_audit(self, record: AuditRecord) -> None:
        """Pass an audit's verdict on a served similar answer to the running canary and the recording."""
        if not record.was_served or record.by in ("feedback", "admin"):
            return
        if self.canaries is not None:
            self.canaries.note_audit(record.id, record.tenant, record.verdict)
        if self.tape is not None and record.verdict != "unknown":
            self.tape.note_audit(record.id, record.tenant, is_wrong=record.verdict == "wrong")

    def _running_canary(self) -> CanaryTrial | None:
        return None if self.canaries is None else self.canaries.current

    def _note_change(self, seq: int, entry: AuditEntry) -> None:
        """Log the newest hash: a second place for it, outside the audit log."""
        self._log.event(
            "admin_change", seq=seq, author=entry.author, action=entry.action, target=entry.target, hash=entry.hash
        )

    def _local_copy(self, name: str) -> PolicyCopy:
        path = self._config.process.runtime_dir / name

        def report(error: OSError) -> None:
            self._log.event("policy_not_saved", level="warning", path=str(path), error=str(error))

        return PolicyCopy(path, wall=self._wall, on_unwritten=report)

    def _note_restored(self, revision: Revision) -> None:
        """Log that a store lost the policy and got it back, so that operators learn of it."""
        self._log.event(
            "policy_restored",
            level="warning",
            revision=revision.revision,
            number=revision.number,
            made_at=revision.at,
        )

    async def _note_access_restored(self, restored: Restored) -> None:
        """Log a restored store, and add a line to the audit log, which may have lost its end as well."""
        counts = asdict(restored)
        try:
            await self.audit.record(SYSTEM, "access.restore", reason=_RESTORED, detail=counts)
        except AuditBroken as error:
            self._log.failure("audit_failed", error)
        self._log.event("access_restored", level="warning", **counts)


def _local_peers(config: GatewayConfig) -> LocalPeers:
    return LocalPeers(
        is_socket=config.admin.is_socket,
        allows_remote=config.admin.allow_remote,
        own_hosts=[urlsplit(config.admin.oidc.redirect_url).netloc.encode("latin-1", "replace")],
    )


def _token_file(key: str, path: Path | None) -> FileToken | None:
    if path is None:
        return None
    try:
        return FileToken(path)
    except OSError as error:
        raise ConfigError(f"admin.{key}: {path} cannot be read ({error.strerror})") from error
    except ValueError:
        raise ConfigError(f"admin.{key}: {path} holds no token of 32 characters or more") from None


def _oidc(
    config: GatewayConfig, store: Store, environment: Mapping[str, str], wall: Callable[[], float]
) -> Oidc | None:
    if not config.admin.oidc.issuer:
        return None
    from gateway.access.sign_in.oidc import Oidc, OidcRules  # only who uses it pays for its imports

    name = config.admin.oidc.client_secret_env
    if name and name not in environment:
        raise ConfigError(f"admin.oidc.client_secret_env: there is no variable {name}")
    rules = OidcRules(
        issuer=config.admin.oidc.issuer,
        client_id=config.admin.oidc.client_id,
        client_secret=environment[name] if name else None,
        redirect_url=config.admin.oidc.redirect_url,
    )
    return Oidc(rules, store, wall)


def _tape(config: GatewayConfig, holder: str, wall: Callable[[], float]) -> Tape | None:
    settings = config.telemetry.recorder
    if settings.mode == "off":
        return None
    return Tape(
        config.process.recording_dir,
        holder=holder,
        max_bytes=settings.max_feature_bytes,
        retention_s=settings.retention_h * 3600.0,
        keeps_text=settings.mode in ("text", "answers"),
        wall=wall,
    )


def _answer_log(config: GatewayConfig, runtime: Runtime) -> AnswerLog | None:
    settings = config.telemetry.recorder
    if settings.mode != "answers":
        return None
    segments = Segments(
        config.process.answers_dir,
        holder=runtime.holder,
        max_bytes=settings.max_answer_bytes,
        retention_s=settings.retention_h * 3600.0,
        wall=runtime.wall,
    )
    ends = {end: runtime.metrics.answer_records.labels(end) for end in get_args(AnswerEnd)}
    return AnswerLog(segments, runtime.wall, lambda end, num: ends[end].inc(num))
