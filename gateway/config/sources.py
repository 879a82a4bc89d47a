"""Sources of settings: `penstock.toml`, then `PENSTOCK_*`, then flags; read once, strictly."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from gateway.config.checks import ConfigError
from gateway.config.settings import GatewayConfig

DEFAULT_FILE: Final = "penstock.toml"
ENV_PREFIX: Final = "PENSTOCK_"
CONFIG_ENV: Final = "PENSTOCK_CONFIG"
EMBEDDED: Final = "embedded:"
MAX_CONFIG_BYTES: Final = 256 * 1024

# A Kubernetes Service called "penstock" puts these into every pod's environment; they are not ours.
_SERVICE_LINK = re.compile(r"PENSTOCK_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT\w*|PORT(?:_\d+_(?:TCP|UDP|SCTP)\w*)?)")


def load_config(
    path: Path | None, env: Mapping[str, str], flags: Mapping[str, object] | None = None, *, cwd: Path | None = None
) -> GatewayConfig:
    """Return the settings; later sources win: file, environment, flags.

    Args:
        path: The file; None is `PENSTOCK_CONFIG`, else `penstock.toml` in `cwd` when there is one.
        env: The environment.
        flags: Path of a setting, such as `public.listen`, to its value; None counts as not given.
        cwd: Relative paths of variables and flags are relative to it, those in the file to the file.

    Raises:
        ConfigError: A setting is unknown or wrong; the message starts with the place that gave it.
    """
    here = (cwd or _working_directory()).resolve()
    named = path or (Path(env[CONFIG_ENV]) if env.get(CONFIG_ENV) else None)
    file = here / named.expanduser() if named is not None else here / DEFAULT_FILE
    found: dict[str, _Found] = {"process.runtime_dir": _Found(here / "run", "--runtime-dir")}
    if named is not None or file.exists():
        found |= _from_file(file)
    found |= _from_env(env, here)
    for key, value in (flags or {}).items():
        if value is not None:
            found[key] = _Found(_anchored(value, here), _flag(key))
    try:
        return config_of({key: given.value for key, given in found.items()})
    except ConfigError as error:  # its message starts with the key
        key, _, message = str(error).partition(": ")
        given = found.get(key)
        raise ConfigError(f"{given.place}: {message}" if given else str(error)) from error


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise ConfigError("the working directory is gone; change to one that exists") from error


def config_of(values: Mapping[str, object]) -> GatewayConfig:
    """Return the settings with these values by path, such as `store.timeout_s`; all others have their defaults.

    Raises:
        ConfigError: A path is unknown or a value wrong; the message starts with the path.
    """
    for key in values:
        if key not in setting_types():
            raise ConfigError(f"{key}: no such setting{_nearest(key, list(setting_types()))}")
    built: GatewayConfig = _built(GatewayConfig, "", values)
    return built


def variables_of(config: GatewayConfig) -> dict[str, str]:
    """Return the variables that make another process have these very settings and read no file for them."""
    given = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in _values(config, "")
        if value is not None and value != ""
    }
    return {CONFIG_ENV: os.devnull, **{variable_of(key): text for key, text in given.items()}}


def variable_of(key: str) -> str:
    """Return the environment variable of a setting's path."""
    return ENV_PREFIX + key.replace(".", "_").upper()


@cache
def setting_types() -> Mapping[str, Any]:
    """Return the type of every setting, by its path."""
    return dict(_types(GatewayConfig, ""))


@dataclass(frozen=True, slots=True)
class _Found:
    """A value and the place where it was given; stored under its path."""

    value: Any
    place: str


def _types(section: type, prefix: str) -> Iterator[tuple[str, Any]]:
    for key, kind in get_type_hints(section).items():
        if is_dataclass(kind):
            assert isinstance(kind, type), "a section's annotation is its class"
            yield from _types(kind, f"{prefix}{key}.")
        else:
            yield prefix + key, kind


def _values(section: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for item in fields(section):
        value = getattr(section, item.name)
        if is_dataclass(value):
            yield from _values(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value


def _built(section: Any, prefix: str, values: Mapping[str, object]) -> Any:
    """Construct a section from the values below its prefix; a wrong value's path leads the error's message."""
    given: dict[str, Any] = {}
    for key, kind in get_type_hints(section).items():
        path = prefix + key
        if is_dataclass(kind):
            given[key] = _built(kind, f"{path}.", values)
        elif path in values:
            given[key] = values[path]
    try:
        return section(**given)
    except ValueError as error:  # its message starts with the key, within this section
        raise ConfigError(f"{prefix}{error}") from error


def _from_file(file: Path) -> dict[str, _Found]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_CONFIG_BYTES + 1)
        if len(raw) > MAX_CONFIG_BYTES:
            raise ConfigError(f"{file}: larger than {MAX_CONFIG_BYTES} bytes")
        data = tomllib.loads(raw.decode())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); check --config and {CONFIG_ENV}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from error
    return dict(_in_tables(data, "", file))


def _in_tables(table: Mapping[str, Any], prefix: str, file: Path) -> Iterator[tuple[str, _Found]]:
    """Yield every setting of a table and the tables in it. Raises ConfigError for an unknown one."""
    types = setting_types()
    for key, value in table.items():
        path = prefix + key
        place = f"{file}: {path}"
        if kind := types.get(path):
            yield path, _Found(_anchored(_typed(kind, value, place, strict=True), file.parent), place)
        elif not (inside := [known for known in types if known.startswith(f"{path}.")]):
            raise ConfigError(f"{place}: no such setting{_nearest(path, list(types))}")
        elif isinstance(value, dict):
            yield from _in_tables(value, f"{path}.", file)
        else:
            names = ", ".join(known.removeprefix(f"{path}.") for known in inside)
            raise ConfigError(f"{place}: expected a table, [{path}], with any of {names}")


def _from_env(env: Mapping[str, str], here: Path) -> dict[str, _Found]:
    types, found = setting_types(), {}
    known = {variable_of(key): key for key in types}
    for name, text in env.items():
        if not name.startswith(ENV_PREFIX) or name == CONFIG_ENV or _SERVICE_LINK.fullmatch(name):
            continue
        if name not in known:
            raise ConfigError(f"{name}: no such setting{_nearest(name, [*known, CONFIG_ENV])}")
        found[known[name]] = _Found(_anchored(_typed(types[known[name]], text, name, strict=False), here), name)
    return found


def _typed(kind: Any, value: object, place: str, *, strict: bool) -> Any:
    """Return the value in its setting's type; `strict` refuses text for a number, which variables cannot avoid."""
    if kind in (Path, Path | None):
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{place}: expected a path, got {value!r}")
        return Path(value).expanduser()
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        message = str(error).replace("`", "").partition(", got ")[0]
        message = (
            f"expected one of {_choices(kind)}" if "enum value" in message else f"{message[0].lower()}{message[1:]}"
        )
        raise ConfigError(f"{place}: {message}, got {value!r}") from error


def _choices(kind: Any) -> str:
    return ", ".join(str(choice) for choice in kind.__args__)


def _nearest(word: str, known: list[str]) -> str:
    """Return the hint for an unknown name: the setting that has all its words, else one that is spelled alike."""
    words = set(re.split(r"[._]", word))
    fitting = [name for name in known if words <= set(re.split(r"[._]", name))]
    near = sorted(fitting, key=len)[:1] or difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if not near:
        sections = sorted({name.rpartition(".")[0] for name in known} - {""})
        alike = difflib.get_close_matches(word, sections, n=1, cutoff=0.6)
        return f"; did you mean [{alike[0]}]?" if alike else f"; known: {', '.join(sections or known)}"
    section, _, key = near[0].rpartition(".")
    return f'; did you mean "{near[0]}"' + (f", which is {key} in [{section}]?" if section else "?")


def _flag(key: str) -> str:
    """Return the flag of a setting's path, as the command line spells it."""
    flag = {"process.runtime_dir": "runtime-dir", "policy.document": "policy", "telemetry.log.level": "log-level"}
    return f"--{flag.get(key, key.replace('.', '-').replace('_', '-'))}"


def _anchored(value: Any, base: Path) -> Any:
    if isinstance(value, str) and value.startswith(EMBEDDED) and value != EMBEDDED:
        return EMBEDDED + str(_absolute(base / Path(value.removeprefix(EMBEDDED)).expanduser()))
    return _absolute(base / value) if isinstance(value, Path) else value


def _absolute(path: Path) -> Path:
    """Return the path without `..`; links stay, for a mounted policy changes by one that is swapped."""
    return Path(os.path.abspath(path)) if ".." in path.parts else path.absolute()
