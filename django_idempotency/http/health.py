"""The health of the records as a small view."""

from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.health import health
from django_idempotency.http.transactions import take_over
from django_idempotency.store.database import alias
from django_idempotency.store.limits import limited

LIMIT_SECONDS = 2.0


@take_over  # ATOMIC_REQUESTS would ask the store first, and nobody would catch what it says
@never_cache
@require_safe
def health_view(request: HttpRequest) -> JsonResponse:
    """200 when all is well, 503 when a person should look or the store does not answer. Names no key."""
    using = alias()
    try:
        with limited(using, LIMIT_SECONDS):
            found = health(using)
    except StoreUnavailable:
        return JsonResponse({"healthy": False, "complaints": ["The store does not answer."]}, status=503)
    return JsonResponse(found.as_json(), status=503 if found.complaints else 200)
