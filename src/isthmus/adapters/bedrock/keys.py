"""What authorises a request to AWS: a Bedrock API key, or a signature (SigV4) made with AWS credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from isthmus.adapters.bedrock.names import HOSTS
from isthmus.errors import CredentialsError, MissingDependencyError
from isthmus.secret import Secret
from isthmus.transport.credentials import KeySource
from isthmus.wire.call import WireCall

SERVICE = "bedrock"
VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"

_REMEDY = (
    "pass api_key (a Bedrock API key) or aws_access_key_id and aws_secret_access_key, name an aws_profile, or set "
    f"{VARIABLE} or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)


@dataclass(frozen=True, kw_only=True)
class AwsIdentity:
    """Whose signature it is; without a key or a profile, what AWS's own chain finds: environment, files, roles.

    Args:
        region: where requests go; None lets the profile say.
        access_key_id: the access key's id.
        secret_access_key: its secret.
        session_token: of temporary credentials.
        profile: a profile of AWS's configuration files.
    """

    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None

    @property
    def is_explicit(self) -> bool:
        """Whether it was named, and not only found."""
        return bool(self.access_key_id or self.profile)


@dataclass(kw_only=True, eq=False, repr=False)
class AwsKeys:
    """Supplies the headers that authorise each request.

    An explicit API key goes first, then an explicit identity, then an API key from a command or the environment, then
    what AWS's own chain finds. Credentials are loaded, and refreshed before they expire, in a thread.

    Args:
        bearer: where an API key comes from.
        identity: who signs where there is none.
        base_url_trusted: whether what AWS's own chain finds may sign for any host.
    """

    bearer: KeySource
    identity: AwsIdentity
    base_url_trusted: bool = False

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._session: Any = None
        self._held: Any = None
        self._region = ""
        self._seen: dict[str, None] = {}
        self._see(self.identity.secret_access_key, self.identity.session_token)

    def __repr__(self) -> str:
        return f"AwsKeys(region={self.identity.region!r}, profile={self.identity.profile!r})"

    def __getstate__(self) -> Any:
        raise TypeError("a key is never pickled: make the adapter anew where it is used")

    def __deepcopy__(self, memo: dict[int, Any]) -> AwsKeys:
        # The copy signs with the same credentials.
        return self

    @property
    def refreshable(self) -> bool:
        """Whether asking again after a 401 can give another key."""
        return self.bearer.refreshable

    def secrets(self) -> Iterable[str]:
        """The keys, secrets and tokens seen so far."""
        return (*self.bearer.secrets(), *self._seen)

    async def headers(self, *, refresh: bool = False) -> Mapping[str, str]:
        """The headers of an API key; those that hold no key where there is none."""
        return await self.bearer.headers(refresh=refresh)

    async def sign(self, url: str, call: WireCall, *, refresh: bool = False) -> Mapping[str, str]:
        """The headers that authorise one request.

        Raises:
            CredentialsError: there is neither an API key nor an identity for AWS's own hosts, or it cannot be loaded.
            MissingDependencyError: an identity is needed, and botocore is not installed.
        """
        identity, host = self.identity, urlsplit(url).hostname or ""
        explicit = identity.is_explicit and not self.bearer.api_key
        given = self.bearer.scheme.extra if explicit else await self.bearer.headers(refresh=refresh)
        if self.bearer.scheme.header in given:
            return given
        own_host = host.endswith(HOSTS)
        if not identity.is_explicit and not own_host and not self.base_url_trusted:
            return given
        held = self._held
        if held is None or refresh or _is_stale(held):
            # Frozen there too: credentials near their end would refresh, which waits.
            frozen = await asyncio.to_thread(self._load)
        else:
            frozen = held.get_frozen_credentials()
        if frozen is None and own_host:
            raise CredentialsError(f"no AWS credentials were found: {_REMEDY}")
        return given if frozen is None else {**given, **self._signed(url, call, frozen=frozen)}

    def _signed(self, url: str, call: WireCall, *, frozen: Any) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        self._see(frozen.secret_key, frozen.token)
        request = AWSRequest(call.method, url, headers={"Content-Type": "application/json"}, data=call.body)
        SigV4Auth(frozen, SERVICE, self._region).add_auth(request)
        names = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")
        return {name.lower(): Secret(request.headers[name]) for name in names if name in request.headers}

    def _see(self, *secrets: str | None) -> None:
        self._seen.update({Secret(secret): None for secret in secrets if secret})

    def _load(self) -> Any:
        """The credentials, fresh and frozen; in a thread: files, processes and metadata servers take their time."""
        try:
            from botocore.exceptions import BotoCoreError
        except ImportError as error:
            raise MissingDependencyError("signing with AWS credentials", "botocore", extra="bedrock") from error
        failure = None
        with self._lock:
            try:
                session = self._session = self._session or self._opened()
                self._region = self.identity.region or session.get_config_variable("region") or ""
                held = self._held = session.get_credentials()
                if held is None or self._region:
                    return held and held.get_frozen_credentials()
            except BotoCoreError as error:
                failure = f"AWS credentials cannot be loaded: {type(error).__name__}: {error}"
        raise CredentialsError(failure or "no region to sign for: pass aws_region, or set AWS_REGION")

    def _opened(self) -> Any:
        from botocore.session import Session

        identity = self.identity
        session = Session(profile=identity.profile)
        if identity.access_key_id:
            session.set_credentials(identity.access_key_id, identity.secret_access_key, identity.session_token)
        return session


def _is_stale(credentials: Any) -> bool:
    """Whether credentials that expire are near their end; those that do not have no such method."""
    needed = getattr(credentials, "refresh_needed", None)
    return needed is not None and bool(needed())
