"""The privacy mechanism of one round: clip, put on the public lattice, add shares of noise, sum exactly.

All quantities are those of the plan, in the unit in which updates are clipped. Client n is sampled with q_n^t; what
leaves it has norm at most c_n^t and carries noise N(0, (c_n^t σ_n^t)²/N); the server adds the shares of everyone else.
Since c_n^t σ_n^t = c σ^t, the total is N(0, (c σ^t)²) whoever took part, and client n faces σ_n^t. A simulation, which
plays all parts, draws the N shares as what they add up to.
"""

from nestegg.mechanism.clipping import BELOW, CLIPPINGS, BlockSum, block_sum, clipped, clipped_sum
from nestegg.mechanism.lattice import MAX_COHORT, Lattice, rounding_epsilon, share_std
from nestegg.mechanism.layout import Layout

__all__ = [
    "BELOW",
    "CLIPPINGS",
    "MAX_COHORT",
    "BlockSum",
    "Lattice",
    "Layout",
    "block_sum",
    "clipped",
    "clipped_sum",
    "rounding_epsilon",
    "share_std",
]
