"""The payments service's routes, and the one that Prometheus scrapes."""

from django.http import HttpRequest, HttpResponse
from django.urls import path
from prometheus_client import generate_latest

from testproject.urls import urlpatterns as payments


def export(request: HttpRequest) -> HttpResponse:
    return HttpResponse(generate_latest(), content_type="text/plain")


urlpatterns = [*payments, path("metrics", export)]
