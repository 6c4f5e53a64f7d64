from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("django_idempotency", "0003_outcomes_per_minute")]
    operations = [
        migrations.AddIndex(
            model_name="idempotencyevent",
            index=models.Index(fields=["kind", "record_id"], name="idempotency_event_kind"),
        ),
    ]
