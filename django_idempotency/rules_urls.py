"""The rules page: path("idempotency/rules/", include("django_idempotency.rules_urls"))"""

from django.urls import path

from django_idempotency.http.rules import rules_view

app_name = "django_idempotency_rules"
urlpatterns = [path("", rules_view, name="rules")]
