"""What of an exception's message may be read by people: the rest is masked."""

from __future__ import annotations

from django_idempotency.core.redaction import LONGEST_MESSAGE, MASK, redact
from tests.kit.corpus import all_as_said


def test_what_is_kept_of_a_message() -> None:
    messages = [
        ("Read timed out. (read timeout=30)", "Read timed out. (read timeout=30)"),
        ("The gateway answered 503 after 4 tries.", "The gateway answered 503 after 4 tries."),
        ("Invalid API key provided: sk_live_51Hx", f"Invalid API key {MASK}"),
        ("https://carol:s3cr3t@bank.example/pay", f"https://{MASK}@bank.example/pay"),
        ("GET https://bank.example/pay?card=4242&t=1 failed", f"GET https://bank.example/pay?{MASK} failed"),
        ("Authorization: Bearer abc.def", f"Authorization: {MASK}"),
        ("{'password': 'two words', 'amount': 5}", f"{{'password': {MASK}"),
        ("token=abc next", f"token={MASK}"),
        ("no user ada@example.org", f"no user {MASK}"),
        ("declined: 4242 4242 4242 4242", f"declined: {MASK}"),
        ("call 0228-123456", f"call {MASK}"),
        ("no charge ch_3Nk2p9Lw8aXz7Qe1 there", f"no charge {MASK} there"),
        ("record c8ef25f2-9a1b-4c3d-8e7f-0a1b2c3d4e5f", f"record {MASK}"),
        ("\n  first line  \nsecond: secret", "first line"),
        ("", ""),
    ]
    assert all_as_said((message, redact(message), expected) for message, expected in messages)


def test_a_secret_is_masked() -> None:
    messages = [
        ("Invalid API Key provided: sk_live_51HxYzAbCdEfGhIj", "sk_live"),
        ("api_key='sk_test_1'", "sk_test_1"),
        ("X-Api-Key: k1", "k1"),
        ('{"access_token": "short", "x": 1}', "short"),
        ("client_secret=pi_3_secret_4 is wrong", "pi_3"),
        ("Set-Cookie: sid=1; Path=/", "sid=1"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJhbGci"),
        ("postgres://app:hunter2@db/prod", "hunter2"),
        ("IBAN DE89370400440532013000", "DE8937"),
        ("DE89 3704 0044 0532 0130 00", "3704 0044"),
        ("pin 1234 was wrong", "1234"),
    ]
    assert [message for message, secret in messages if secret in redact(message)] == []


def test_a_long_message_is_cut() -> None:
    assert redact("word " * 1_000) == ("word " * 1_000)[: LONGEST_MESSAGE - 1] + "…"
