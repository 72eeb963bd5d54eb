"""Which viewer is configured, and the token for it: from the environment, or as `ct login` kept it.

A token goes to the viewer that it is for, never to another: viewers are told apart by scheme, host and port.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from control_tower import config
from control_tower.client.origins import base_of, check_secure, origin
from control_tower.errors import OperationError, UsageError, ValidationError

TOKEN = "CONTROL_TOWER_API_TOKEN"
BASE_URL = "CONTROL_TOWER_API_BASE_URL"

WARN_DAYS = 14
"""How long before a token ends that is said."""

_DAY = 86400


@dataclass(frozen=True)
class Credentials:
    """A viewer's address and what it is entered with."""

    url: str
    """Without a slash at the end."""
    token: str | None = field(default=None, repr=False)
    """None: there is none for this viewer."""


@dataclass(frozen=True)
class KeptToken:
    """A token as `ct login` keeps it."""

    url: str
    """Of the viewer, without a slash at the end."""
    token: str = field(repr=False)
    user: str | None = None
    scopes: tuple[str, ...] = ()
    expires: str | None = None
    """RFC 3339; None is never, or not known."""
    insecure: bool = False
    """Whether the user allowed it to be sent without TLS."""


@dataclass(frozen=True)
class TokenFile:
    """What is kept: a token for each viewer."""

    default: str | None = None
    """Address of the viewer that is used where none is configured: the last one logged in to."""
    hosts: Mapping[str, KeptToken] = field(default_factory=dict[str, KeptToken])
    """By `origin`."""


def credentials(url: str | None = None) -> Credentials | None:
    """The viewer to speak to.

    Args:
        url: The address of a viewer that was named; None is the configured viewer, else the one that
            `ct login` was last used for.

    Returns:
        None where no viewer is named or configured: runs are kept in the local data folder.

    Raises:
        UsageError: There is a token without an address, an address is none, or the token would be sent
            without TLS to another machine.
        ValidationError: The file of tokens cannot be read.
    """
    configured = config.get("api_base_url")
    given = _given_token()
    if given and not configured:
        raise UsageError(f"{TOKEN} is set without {BASE_URL}: name the viewer that it is for")
    url = url or default_url()
    if url is None:
        return None
    base = base_of(url)
    if given and configured and origin(configured) == origin(base):
        kept = read_tokens().hosts.get(origin(base))
        check_secure(base, allowed=kept is not None and kept.insecure)
        return Credentials(base, given)
    kept = kept_token(base)
    if kept is None:
        return Credentials(base)
    check_secure(base, allowed=kept.insecure)
    _warn_of_end(kept)
    return Credentials(base, kept.token)


def default_url() -> str | None:
    """The viewer that commands use: the configured one, else the one that was last logged in to.

    Raises:
        ValidationError: The file of tokens cannot be read.
    """
    return config.get("api_base_url") or read_tokens().default


def kept_token(url: str) -> KeptToken | None:
    """The token kept for a viewer, by us or by an older client.

    Raises:
        ValidationError: The file of tokens cannot be read.
    """
    return read_tokens().hosts.get(origin(url)) or _older_clients(url)


def keep_token(token: KeptToken) -> None:
    """Keeps the token of a viewer, in place of the one before; the viewer becomes the default.

    Raises:
        OperationError: The file cannot be written.
        ValidationError: It cannot be read.
    """
    _change(lambda file: TokenFile(token.url, {**file.hosts, origin(token.url): token}))


def forget_token(url: str) -> None:
    """Drops the token of a viewer, where there is one.

    Raises:
        OperationError: The file cannot be written.
        ValidationError: It cannot be read.
    """

    def without(file: TokenFile) -> TokenFile:
        left = {key: kept for key, kept in file.hosts.items() if key != origin(url)}
        same = file.default is not None and origin(file.default) == origin(url)
        return TokenFile(None if same else file.default, left)

    _change(without)


def read_tokens() -> TokenFile:
    """What is kept; empty when nobody has logged in.

    Raises:
        ValidationError: The file is not one of ours.
        OperationError: It cannot be read.
    """
    path = _path()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return TokenFile()
    except OSError as error:
        raise OperationError(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as stream:
        if os.fstat(descriptor).st_mode & 0o077:
            logging.getLogger(__name__).warning("%s could be read by others; it no longer can", path)
            os.fchmod(descriptor, 0o600)
        data = stream.read()
    try:
        found = cast("dict[str, Any]", json.loads(data))
        return TokenFile(found["default"], {key: _kept(each) for key, each in found["hosts"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValidationError(f"{path} is damaged: delete it, and log in again") from None


def check_token(text: str, source: str) -> str:
    """A token as it was given, without the white space around it.

    Raises:
        UsageError: It is empty, or was mistyped.
    """
    from control_tower.agent_runs.accounts.token_text import public_id_of

    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{source}: this is no token")
    if token.startswith("ct_") and public_id_of(token) is None:
        raise UsageError(f"{source}: the token is not whole, or mistyped: its check digits are wrong")
    return token


def _kept(found: dict[str, Any]) -> KeptToken:
    found["scopes"] = tuple(found["scopes"])
    return KeptToken(**found)


def _given_token() -> str | None:
    given = os.environ.get(TOKEN)
    return check_token(given, TOKEN) if given else None


def _warn_of_end(kept: KeptToken) -> None:
    if kept.expires is None:
        return
    try:
        days = (datetime.fromisoformat(kept.expires).timestamp() - time.time()) / _DAY
    except ValueError:
        return
    if days < WARN_DAYS:
        when = f"ends in {days:.0f} days" if days > 1 else "ends within a day" if days > 0 else "has ended"
        logging.getLogger(__name__).warning(
            "the token for %s %s: `ct login --url %s` makes a new one", kept.url, when, kept.url
        )


def _older_clients(url: str) -> KeptToken | None:
    """The token that an older client keeps, if it is for this viewer; its file is never written."""
    cache = config.get("cache_dir") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "control-tower")
    try:
        found = json.loads(Path(cache, "auth", "token.json").expanduser().read_bytes())
        kept = KeptToken(base_of(found["url"]), check_token(found["token"], "token.json"))
        return kept if origin(kept.url) == origin(url) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError):
        return None


def _path() -> Path:
    return config.config_dir() / "tokens.json"


def _change(edit: Callable[[TokenFile], TokenFile]) -> None:
    """Writes the file anew; logins at the same time wait for each other."""
    path = _path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            file = edit(read_tokens())
            temporary = path.with_name(f".tokens-{secrets.token_hex(8)}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(asdict(file), stream, indent=2)
                stream.flush()
                os.fsync(descriptor)
            temporary.replace(path)
    except OSError as error:
        raise OperationError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """One process at a time, and a folder that only its owner can change."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_mode & 0o022:
            os.fchmod(descriptor, 0o700)
        yield
    finally:
        os.close(descriptor)
