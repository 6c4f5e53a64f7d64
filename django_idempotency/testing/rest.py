"""The test client of Django REST framework, with keys; the only module of the kit that imports the framework."""

from rest_framework.test import APIClient

from django_idempotency.testing.clients import KeyedRequests


class IdempotentAPIClient(KeyedRequests, APIClient):  # type: ignore[misc] # its `generic` names no more arguments
    """Django REST framework's test client, with keys."""
