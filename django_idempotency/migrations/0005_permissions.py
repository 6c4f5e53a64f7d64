"""What an operator can be allowed to do; adding, changing and deleting records is nobody's right."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("django_idempotency", "0004_events_by_kind")]
    operations = [
        migrations.AlterModelOptions(
            name="idempotencykey",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("view_content", "Can view stored bodies, arguments and results"),
                    ("ask_reconciler", "Can ask the reconciler at once"),
                    ("resolve_landed", "Can say that it happened and store the answer"),
                    ("resolve_not_executed", "Can say that it did not happen"),
                    ("try_again", "Can give a dead letter all its tries again"),
                    ("enqueue", "Can ask for a worker again"),
                    ("expire_now", "Can expire a stored answer now"),
                ],
                "verbose_name": "idempotency key",
                "verbose_name_plural": "idempotency keys",
            },
        ),
    ]
