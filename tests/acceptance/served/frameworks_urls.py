"""One view of each framework, and a login."""

from django.urls import path

from django_idempotency.decorators import exempt
from tests.acceptance.served.bookings import enter
from tests.kit.framework_views import urlpatterns as frameworks

urlpatterns = [*frameworks, path("login", exempt(enter))]
