"""The status of deferred work and of keys: path("idempotency/", include("django_idempotency.urls"))"""

from collections.abc import Callable

from django.apps import apps
from django.http.response import HttpResponseBase
from django.urls import path

from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.http.views import KeyView, OperationView

if apps.is_installed("rest_framework"):
    from django_idempotency import rest_framework

    operation_view: Callable[..., HttpResponseBase] = opt_out_of_atomic_requests(rest_framework.OperationView.as_view())
    key_view: Callable[..., HttpResponseBase] = opt_out_of_atomic_requests(rest_framework.KeyView.as_view())
else:
    operation_view = opt_out_of_atomic_requests(OperationView.as_view())
    key_view = opt_out_of_atomic_requests(KeyView.as_view())

app_name = "django_idempotency"
urlpatterns = [
    path("operations/<str:ref>/", operation_view, name="idempotency-operation"),
    path("keys/", key_view, name="idempotency-key"),
]
