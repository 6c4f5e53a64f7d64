from django.db import migrations, models

import django_idempotency.fields


class Migration(migrations.Migration):
    dependencies = [("django_idempotency", "0002_compress_bodies")]
    operations = [
        migrations.CreateModel(
            name="IdempotencyCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("minute", models.DateTimeField(verbose_name="minute")),
                ("operation", django_idempotency.fields.ExactCharField(max_length=255, verbose_name="operation")),
                ("outcome", models.CharField(max_length=32, verbose_name="outcome")),
                ("count", models.PositiveBigIntegerField(verbose_name="count")),
            ],
            options={
                "verbose_name": "count of outcomes",
                "verbose_name_plural": "counts of outcomes",
                "db_table": "idempotency_count",
                "constraints": [
                    models.UniqueConstraint(fields=("minute", "operation", "outcome"), name="idempotency_count_bucket"),
                ],
            },
        ),
    ]
