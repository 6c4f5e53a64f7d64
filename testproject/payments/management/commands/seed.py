"""Fill the database with the people and the history of the demonstration; running it again changes nothing."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand
from django.db import transaction
from rest_framework.authtoken.models import Token

from testproject.history import fill
from testproject.payments.models import LedgerEntry, Payment
from testproject.stories import tell

CUSTOMERS = ("ada", "grace", "edsger", "barbara")
PAYMENTS_EACH = 6


class Command(BaseCommand):
    help = "Users alice, bob and admin (password = name), the tokens alice-token and bob-token, and some history."

    def add_arguments(self, parser: ArgumentParser) -> None:
        extent = parser.add_mutually_exclusive_group()
        extent.add_argument(
            "--people", action="store_true", help="only the users and tokens, without payments of theirs"
        )
        extent.add_argument("--history", action="store_true", help="also a day of keys, for a look at the admin")

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            person("admin", is_staff=True, is_superuser=True)
            for name in ("alice", "bob"):
                user = person(name)
                token(user)
                if not options["people"]:
                    history(user)
        if options["history"]:
            self.stdout.write(f"{fill()} keys of a day that never was, and {tell()} with a past worth reading.")
        self.stdout.write("Ready: tokens alice-token and bob-token, Stripe keys sk_test_alice and sk_test_bob.")


def person(name: str, **rights: bool) -> User:
    user, created = User.objects.get_or_create(username=name, defaults=rights)
    if created:
        user.set_password(name)
        user.save()
    return user


def token(user: User) -> None:
    key = f"{user.username}-token"
    Token.objects.filter(user=user).exclude(key=key).delete()
    Token.objects.get_or_create(key=key, defaults={"user": user})


def history(user: User) -> None:
    for number in range(1, PAYMENTS_EACH + 1):
        order = {"amount": 1250 * number, "currency": "EUR", "customer": CUSTOMERS[number % len(CUSTOMERS)]}
        Payment.objects.get_or_create(charge=f"ch_seed_{user.username}_{number}", defaults={"owner": user, **order})
    for account, amount in (("savings", -50_000), ("current", 50_000)):
        LedgerEntry.objects.get_or_create(
            reference=f"seed-{user.username}", account=account, defaults={"owner": user, "amount": amount}
        )
