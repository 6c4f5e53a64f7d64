"""A payment knows the record of the request that made it."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_idempotency", "0001_initial"),
        ("payments", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="payment",
            name="idempotency_key",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                help_text="Which request made it; empty once the record has gone.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="payments",
                to="django_idempotency.idempotencykey",
            ),
        ),
    ]
