"""The kinds of events in the audit trail of a record."""

from enum import StrEnum


class Kind(StrEnum):
    """The name of an event as it is stored, and the row of the transition table that it records."""

    cite: str

    IN_DOUBT = "in doubt", "T5"
    LEASE_EXPIRED = "lease expired", "T6"
    TAKEN_OVER = "taken over", "T7"
    LANDED = "landed", "T9"
    STEP_LANDED = "step landed", "T9s"
    INCONCLUSIVE = "inconclusive", "T11"
    TOO_EARLY = "too early", "T11p"
    NOT_EXECUTED = "not executed", "T10"
    STEP_NOT_EXECUTED = "step not executed", "T10s"
    DEAD_LETTER = "dead letter", "T12"
    CONFIRMED = "confirmed", "T13"
    STEP_CONFIRMED = "step confirmed", "T13s"
    CONFIRMED_TOO_LATE = "confirmed too late", "T13e"
    DENIED = "denied", "T13''"
    DISMISSED = "dismissed", "T14"
    STEP_DISMISSED = "step dismissed", "T14s"
    RESET = "reset", "T14'"
    REQUEUED = "requeued", "D3"
    EXPIRED = "expired", "T18"
    ASKED = "asked", ""
    MISMATCH = "mismatch", ""
    HEARTBEAT_FAILED = "heartbeat failed", ""

    def __new__(cls, value: str, cite: str) -> "Kind":
        member = str.__new__(cls, value)
        member._value_ = value
        member.cite = cite
        return member
