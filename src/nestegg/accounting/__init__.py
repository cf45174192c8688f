"""Privacy accounting of the sampled Gaussian mechanism. No torch, no files: numbers in, numbers out."""

from nestegg.accounting.accountant import Accountant, Charge, S, Spending, compose, merged
from nestegg.accounting.calibration import MAX_NOISE, MIN_NOISE, first_guess, smallest_noise, smallest_root
from nestegg.accounting.filters import filter_order, renyi_account
from nestegg.accounting.gaussian import GaussianAccountant, GaussianSpending, gaussian_allowance
from nestegg.accounting.pld import SMALLEST_DELTA, PldAccountant, PldSpending
from nestegg.accounting.rdp import ORDERS, RdpAccountant, RdpSpending
from nestegg.accounting.sampled_gaussian import Array, rdp

__all__ = [
    "MAX_NOISE",
    "MIN_NOISE",
    "ORDERS",
    "SMALLEST_DELTA",
    "Accountant",
    "Array",
    "Charge",
    "GaussianAccountant",
    "GaussianSpending",
    "PldAccountant",
    "PldSpending",
    "RdpAccountant",
    "RdpSpending",
    "S",
    "Spending",
    "compose",
    "filter_order",
    "first_guess",
    "gaussian_allowance",
    "merged",
    "rdp",
    "renyi_account",
    "smallest_noise",
    "smallest_root",
]
