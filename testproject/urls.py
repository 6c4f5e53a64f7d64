"""Every route of the service; the module that a route names holds its code."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from testproject.payments import (
    async_payments,
    conformance,
    exports,
    outbox_page,
    payments,
    rides,
    stripe_charges,
    transfers,
    webhooks,
)

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("idempotency/", include("django_idempotency.urls")),
    path("idempotency/rules/", include("django_idempotency.rules_urls")),
    path("idempotency/health/", include("django_idempotency.health_urls")),
    path("payments/", payments.PaymentViewSet.as_view({"get": "list", "post": "create"}), name="payments"),
    path("payments/<int:pk>/", payments.PaymentViewSet.as_view({"get": "retrieve"}), name="payment"),
    path("rides/", rides.RideView.as_view(), name="rides"),
    path("exports/", exports.ExportView.as_view(), name="exports"),
    path("transfers/", transfers.create, name="transfers"),
    path("async/payments/", async_payments.create, name="async-payments"),
    path("v1/charges", stripe_charges.create, name="stripe-charges"),
    path("v1/charges/<str:charge_id>", stripe_charges.retrieve, name="stripe-charge"),
    path("outbox/", outbox_page.show, name="outbox"),
    path("webhooks/gateway/", webhooks.receive, name="gateway-webhooks"),
    path("conformance/echo", conformance.echo, name="conformance-echo"),
    path("conformance/status/<int:code>", conformance.status, name="conformance-status"),
    path("conformance/slow", conformance.slow, name="conformance-slow"),
    path("conformance/large", conformance.large, name="conformance-large"),
    path("conformance/counter", conformance.counter, name="conformance-counter"),
    path("conformance/reset", conformance.reset, name="conformance-reset"),
]

if settings.DESCRIBED:
    from drf_spectacular.views import SpectacularAPIView

    from testproject.schema import SETTINGS

    urlpatterns.append(path("schema/", SpectacularAPIView.as_view(custom_settings=SETTINGS), name="schema"))
