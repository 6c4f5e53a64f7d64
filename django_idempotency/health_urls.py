"""The health view: path("internal/health/", include("django_idempotency.health_urls"))"""

from django.urls import path

from django_idempotency.http.views import health_view

app_name = "django_idempotency_health"
urlpatterns = [path("", health_view, name="health")]
