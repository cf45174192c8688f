"""What travels in Flower's messages, as records, and how it is read: as if a stranger had written it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from nestegg.errors import InputError
from nestegg.flower.terms import Order, Terms
from nestegg.schema import Section, read

ORDER, OFFER, ANSWER, UPDATE = "nestegg", "nestegg-offer", "nestegg-answer", "nestegg-update"
ENROL = "query.nestegg"  # the type of an enrolment message
REFUSED, FAILED = "refused", "failed"  # all that a server is told


class _OrderRecord(Section):
    run: str
    terms: str
    group: str
    round: int
    clipping: str
    clip_norm: float
    noise_std: float


class _OfferRecord(Section):
    terms: str
    digest: str
    group: str


class _AnswerRecord(Section):
    epsilon: float
    delta: float
    group: str
    partition: int


@dataclass(frozen=True)
class Answer:
    """A node's answer to an offer: its budget, the group it takes, and the partition it claims (−1 is none)."""

    epsilon: float
    delta: float
    group: str
    partition: int


def order_to_record(order: Order) -> ConfigRecord:
    """An order as a record."""
    return ConfigRecord(dict(order._asdict()))


def order_of(content: RecordDict) -> Order:
    """The order in a message."""
    return Order(**_record(content, ORDER, _OrderRecord).model_dump())


def offer_to_record(terms: Terms, group: str | None) -> ConfigRecord:
    """Terms, and the group if the server's roster has one, as a record."""
    return ConfigRecord({"terms": terms.text, "digest": terms.digest, "group": group or ""})


def offer_of(content: RecordDict) -> tuple[Terms, str | None]:
    """The offer in a message; its terms must be what their digest says."""
    record = _record(content, OFFER, _OfferRecord)
    terms = Terms.parse(record.terms)
    if terms.digest != record.digest:
        raise InputError("the offer's terms are not those of its digest.")
    return terms, record.group or None


def answer_to_record(answer: Answer) -> ConfigRecord:
    """An answer as a record."""
    return ConfigRecord(dict(vars(answer)))


def answer_of(content: RecordDict) -> Answer:
    """The answer in a message."""
    return Answer(**_record(content, ANSWER, _AnswerRecord).model_dump())


def single_arrays(content: RecordDict) -> ArrayRecord:
    """The one record of arrays in a message."""
    if len(content.array_records) != 1:
        raise InputError(f"a message has {len(content.array_records)} records of arrays; it must have one.")
    (arrays,) = content.array_records.values()
    return arrays


def _record(content: RecordDict, name: str, model: type[Any]) -> Any:
    if name not in content.config_records:
        raise InputError(f"a message has no record {name!r}.")
    return read(model, dict(content.config_records[name]), f"record {name!r}")
