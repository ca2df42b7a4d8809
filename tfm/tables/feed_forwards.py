"""Feed-forward layers by the tag of their options."""

from tfm.catalogue.feed_forwards import expert_choice, experts, mix_ffn
from tfm.feed_forwards import SINGLE
from tfm.interfaces import FeedForwardLayer

FEED_FORWARDS: dict[str, FeedForwardLayer] = {
    "dense": SINGLE,
    "experts": experts.FEED_FORWARD,
    "expert_choice": expert_choice.FEED_FORWARD,
    "mix_ffn": mix_ffn.FEED_FORWARD,
}
