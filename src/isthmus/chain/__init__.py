"""Chains: several tiers behind one adapter, tried in order, with one policy for failures."""

from isthmus.chain.budget import Budget, Spending
from isthmus.chain.chain import Chain
from isthmus.chain.context import ContextPolicy, RenderReport, render
from isthmus.chain.custom import custom_model
from isthmus.chain.define import define_chain, of
from isthmus.chain.health import Cooldown
from isthmus.chain.ledger import Attempt
from isthmus.chain.markers import define_marker, promote
from isthmus.chain.prices import Price, published_prices
from isthmus.chain.tier import Tier
from isthmus.errors import ChainCut, ChainExhausted, CutReason, TierError, tier_error
from isthmus.models.contract import GenerateContext
from isthmus.models.events import ModelEvent, SideEvent, StepResult, StreamEvent, Usage
from isthmus.models.fold import consume_stream
from isthmus.models.retry import RetryPolicy

__all__ = [
    "Attempt",
    "Budget",
    "Chain",
    "ChainCut",
    "ChainExhausted",
    "ContextPolicy",
    "Cooldown",
    "CutReason",
    "GenerateContext",
    "ModelEvent",
    "Price",
    "RenderReport",
    "RetryPolicy",
    "SideEvent",
    "Spending",
    "StepResult",
    "StreamEvent",
    "Tier",
    "TierError",
    "Usage",
    "consume_stream",
    "custom_model",
    "define_chain",
    "define_marker",
    "of",
    "promote",
    "published_prices",
    "render",
    "tier_error",
]
