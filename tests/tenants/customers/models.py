"""The tenants of the small project that django-tenants is tried with."""

from django_tenants.models import DomainMixin, TenantMixin


class Customer(TenantMixin):  # type: ignore[misc]
    auto_create_schema = True

    class Meta:
        app_label = "customers"


class Domain(DomainMixin):  # type: ignore[misc]
    class Meta:
        app_label = "customers"
