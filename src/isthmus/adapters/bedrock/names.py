"""What a model's id or ARN says: whose model it is, in which region, and how it stands in a path."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import quote

MESSAGES_VENDOR = "anthropic"
"""Whose models speak the Messages dialect by InvokeModel."""

SCHEMAS = "bedrock"
_DOMAIN = "amazonaws.com"
# The partitions with a domain of their own, by how their regions begin; AWS's own list of partitions, 2026-11.
_DOMAINS = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "us-isof-": "csp.hci.ic.gov",
    "eu-isoe-": "cloud.adc-e.uk",
}
HOSTS = (f".{_DOMAIN}", *(f".{domain}" for domain in _DOMAINS.values()), ".api.aws")
"""The hosts that credentials from the environment and from AWS's own files are for."""

_ARN_REGION = re.compile(r"arn:aws[\w-]*:(?:bedrock|sagemaker):([a-z0-9-]+):")
_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_OTHER = re.compile(r"[^a-zA-Z0-9_.:-]")


def vendor_of(model: str) -> str:
    """Whose model it is, "" where the id does not say: an application inference profile's ARN, an imported model.

    A prefix of regions ("us.", "eu.", "apac.", "global.", …) and an ARN around the id are looked through.

    Args:
        model: an id, e.g. "us.anthropic.claude-sonnet-5", or an ARN.
    """
    segments = model.rpartition("/")[2].split(".")
    if len(segments) < 2:
        return ""
    return MESSAGES_VENDOR if MESSAGES_VENDOR in segments[:2] else segments[0]


def region_of(model: str) -> str | None:
    """The region that an ARN names."""
    found = _ARN_REGION.match(model)
    return found[1] if found else None


def domain_of(region: str) -> str:
    """The domain of the endpoints of a region, e.g. "amazonaws.com"."""
    return next((domain for start, domain in _DOMAINS.items() if region.startswith(start)), _DOMAIN)


def path_of(model: str, action: str) -> str:
    """The path of a request, e.g. "/model/us.amazon.nova-lite-v1%3A0/converse"."""
    return f"/model/{quote(model, safe='')}/{action}"


def wire_id(call_id: str) -> str:
    """A call's id as Converse takes it: itself, or legal characters and a hash; ToolUseBlock, 2026-11: 1 to 64."""
    if _ID.fullmatch(call_id):
        return call_id
    digest = sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{_OTHER.sub('_', call_id)[:50]}_{digest}"
