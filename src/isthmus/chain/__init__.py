"""Chains: several tiers behind one adapter, tried in order, with one policy for failures."""

from isthmus.chain.chain import Chain, define_chain, of
from isthmus.chain.ledger import Attempt
from isthmus.chain.tier import Tier
from isthmus.errors import ChainExhausted, CutReason, TierError, tier_error
from isthmus.models.contract import GenerateContext
from isthmus.models.events import ModelEvent, SideEvent, StepResult, StreamEvent, Usage
from isthmus.models.fold import consume_stream
from isthmus.models.retry import RetryPolicy

__all__ = [
    "Attempt",
    "Chain",
    "ChainExhausted",
    "CutReason",
    "GenerateContext",
    "ModelEvent",
    "RetryPolicy",
    "SideEvent",
    "StepResult",
    "StreamEvent",
    "Tier",
    "TierError",
    "Usage",
    "consume_stream",
    "define_chain",
    "of",
    "tier_error",
]
