"""How a server is trusted and a client is known."""

from __future__ import annotations

import ssl
from pathlib import Path

from isthmus.errors import ConfigError


def ssl_context(
    verify: bool, ca_bundle: str | Path | None, *, client_cert: str | Path | tuple[str | Path, str | Path] | None
) -> ssl.SSLContext | bool:
    """What the client takes for `ssl`: True for the defaults, or a context of its own."""
    if verify and ca_bundle is None and client_cert is None:
        return True
    at = Path(ca_bundle) if ca_bundle is not None else None
    try:
        context = ssl.create_default_context(
            cafile=str(at) if at is not None and not at.is_dir() else None,
            capath=str(at) if at is not None and at.is_dir() else None,
        )
        if client_cert is not None:
            files = client_cert if isinstance(client_cert, tuple) else (client_cert,)
            context.load_cert_chain(*map(str, files))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"a certificate file cannot be used: {error}; ca_bundle and client_cert take PEM files"
        ) from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
