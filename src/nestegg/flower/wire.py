"""What travels in Flower's messages, as records, and how it is read: as if a stranger had written it."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from nestegg.errors import InputError
from nestegg.flower.terms import Order, Terms
from nestegg.schema import Model, Section, read

ORDER, OFFER, ANSWER, UPDATE = "nestegg", "nestegg-offer", "nestegg-answer", "nestegg-update"
_MEASURED = ("accuracy", "loss")
HELD_BACK = "held-back"  # the record of metrics that training code measures on samples it never trains on
ENROL = "query.nestegg"  # the type of an enrolment message
# All that a server is told. Who refuses has not trained: that follows from terms, account and order, never from data.
REFUSED, FAILED = "refused", "failed"


class Answer(Section):
    """A node's answer to an offer: its budget, the group it takes, and the partition it claims (−1 is none)."""

    epsilon: float
    delta: float
    group: str
    partition: int


class _Offer(Section):
    terms: str
    digest: str
    group: str


def as_record(section: Section) -> ConfigRecord:
    """An order, an offer or an answer as a record."""
    return ConfigRecord(section.model_dump(exclude_defaults=True))  # older clients know no later keys


def order_of(content: RecordDict) -> Order:
    """The order in a message."""
    return _record(content, ORDER, Order)


def answer_of(content: RecordDict) -> Answer:
    """The answer in a message."""
    return _record(content, ANSWER, Answer)


def offer(terms: Terms, group: str | None) -> ConfigRecord:
    """Terms, and the group if the server's roster has one, as a record."""
    return as_record(_Offer(terms=terms.text, digest=terms.digest, group=group or ""))


def offer_of(content: RecordDict) -> tuple[Terms, str | None]:
    """The offer in a message; its terms must be what their digest says."""
    record = _record(content, OFFER, _Offer)
    terms = Terms.parse(record.terms)
    if terms.digest != record.digest:
        raise InputError("the offer's terms are not those of its digest.")
    return terms, record.group or None


def error(word: str, message: Message) -> Message:
    """The answer of a client that refuses or fails."""
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, word), reply_to=message)


def is_refusal(reply: Message) -> bool:
    """Whether a client has refused; not whether it has failed, or was lost."""
    if not reply.has_error():
        return False
    return (reply.error.code, reply.error.reason) == (ErrorCode.MOD_FAILED_PRECONDITION, REFUSED)


def single_arrays(content: RecordDict) -> ArrayRecord:
    """The one record of arrays in a message."""
    if len(content.array_records) != 1:
        raise InputError(f"a message has {len(content.array_records)} records of arrays; it must have one.")
    (arrays,) = content.array_records.values()
    return arrays


def held_back(content: RecordDict) -> tuple[float, float]:
    """The share of right answers and the loss that training code measured; not a number where it did not."""
    record = dict(content.metric_records[HELD_BACK]) if HELD_BACK in content.metric_records else {}
    right, loss = (
        float(one) if isinstance(one := record.get(name), int | float) else float("nan") for name in _MEASURED
    )
    return (right if 0.0 <= right <= 1.0 else float("nan")), loss  # a share: percents are no number


def _record(content: RecordDict, name: str, model: type[Model]) -> Model:
    if name not in content.config_records:
        raise InputError(f"a message has no record {name!r}.")
    return read(model, dict(content.config_records[name]), f"record {name!r}")
