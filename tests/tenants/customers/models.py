"""The tenants of the small project that django-tenants is tried with."""

from django_tenants.models import DomainMixin, TenantMixin


class Customer(TenantMixin):
    auto_create_schema = True

    class Meta:
        app_label = "customers"


class Domain(DomainMixin):
    class Meta:
        app_label = "customers"
