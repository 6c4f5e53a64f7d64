"""PostgreSQL compresses stored bodies with lz4 where it was built with it: large inserts are several times faster."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def compress(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    connection = schema_editor.connection
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)")
        if cursor.fetchone():
            cursor.execute("ALTER TABLE idempotency_key ALTER COLUMN response_body SET COMPRESSION lz4")


class Migration(migrations.Migration):
    dependencies = [("django_idempotency", "0001_initial")]
    operations = [migrations.RunPython(compress, migrations.RunPython.noop)]
