"""The requests that are sent to a package, old or new, and what is recorded of its responses.

This module imports nothing of the project's package, because it also runs where only an old package is installed.
"""

import base64
import json
import re
from typing import Any
from unittest import mock

from django.contrib.auth.models import User
from django.test import Client
from rest_framework.authentication import BasicAuthentication, SessionAuthentication
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tests.kit.http import Ran

KEYS = [f"8e03978e-40d5-43dd-bc93-6894a57f930{n}" for n in range(6)]
PAY, REFUSE, CRASH, WAIT = {"amount": 1}, {"do": "refuse"}, {"do": "crash"}, {"do": "wait"}
HEADERS = ("Location", "Retry-After", "Idempotency-Key", "Cached-From-Idempotency-Key", "Idempotent-Replayed")
INSIDE: list[Any] = []


class Permitted(IsAuthenticated):
    barred: str | None = None

    def has_permission(self, request: Request, view: APIView) -> bool:
        return super().has_permission(request, view) and request.user.username != self.barred


class Payment(APIView):
    """The view of all recordings, which the class of a package protects."""

    authentication_classes = (BasicAuthentication, SessionAuthentication)
    permission_classes = (Permitted,)

    def post(self, request: Request) -> Response:
        name = f"run-{Ran.again()}"
        sent: Any = request.data
        match sent.get("do"):
            case "refuse":
                raise ValidationError({"amount": [f"refused in {name}"]})
            case "crash":
                raise RuntimeError("planned")
            case "wait" if not INSIDE:
                INSIDE.append(None)  # the duplicate may run as well
                INSIDE[0] = send("alice", KEYS[3], WAIT, where="/leased")
        return Response({"run": name}, 201, headers={"Location": f"/pay/{name}"})


def send(who: str | None, key: str | None, body: Any, where: str = "/pay", session: bool = False) -> Any:
    client = Client(raise_request_exception=False)
    headers = {} if key is None else {"Idempotency-Key": key}
    if session:
        client.force_login(User.objects.get(username=who))
    elif who is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{who}:{who}".encode()).decode()
    return client.post(where, json.dumps(body), "application/json", headers=headers)


def describe(response: Any, ran: int) -> dict[str, Any]:
    """What is compared of a response: runs are named, and the error page has no body."""
    name = "this run" if ran else "first run"
    text = re.sub(r"run-\d+", name, response.content.decode())
    headers = {each: re.sub(r"run-\d+", name, response[each]) for each in HEADERS if each in response}
    body = json.loads(text) if "json" in response["Content-Type"] else None
    return {"status": response.status_code, "headers": headers, "body": body, "ran": ran}


def record() -> dict[str, Any]:
    """Send the requests of a recording, and return what is compared of their responses."""
    told: dict[str, Any] = {}

    def note(case: str, *args: Any, **more: Any) -> None:
        before = Ran.count
        told[case] = describe(send(*args, **more), Ran.count - before)

    note("new", "alice", KEYS[0], PAY)
    note("replay", "alice", KEYS[0], PAY)
    with mock.patch.object(Permitted, "barred", "alice"):
        note("permission withdrawn", "alice", KEYS[0], PAY)
    note("other payload", "alice", KEYS[0], {"amount": 2})
    note("other path", "alice", KEYS[0], PAY, where="/pay/other")
    note("other user", "bob", KEYS[0], PAY)
    note("no credentials", None, KEYS[0], PAY)
    send("alice", KEYS[4], PAY, session=True)
    note("other user, by session", "bob", KEYS[4], PAY, session=True)
    note("missing key", "alice", None, PAY)
    note("invalid key", "alice", "no key!", PAY)
    note("error response", "alice", KEYS[1], REFUSE)
    note("error response again", "alice", KEYS[1], REFUSE)
    note("exception", "alice", KEYS[2], CRASH)
    note("exception again", "alice", KEYS[2], CRASH)
    send("alice", KEYS[5], CRASH, where="/leased")
    note("exception again, leased", "alice", KEYS[5], CRASH, where="/leased")
    before = Ran.count
    send("alice", KEYS[3], WAIT, where="/leased")
    told["in flight"] = describe(INSIDE.pop(), Ran.count - before - 1)
    note("quoted key", "alice", f'"{KEYS[0]}"', PAY)
    note("other spelling", "alice", KEYS[0].upper(), PAY)
    return told
