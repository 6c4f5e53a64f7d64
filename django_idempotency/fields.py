"""Column and index types that mean the same on every database."""

from typing import TYPE_CHECKING, Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import CharField, Index, Model, Q
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler

if TYPE_CHECKING:
    _Text = CharField[str, str]
else:
    _Text = CharField  # generic for type checkers only


class ExactCharField(_Text):
    """Text compared byte for byte: 'a', 'A' and 'a ' are three values, on MySQL and MariaDB too."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        parameters: dict[str, Any] = super().db_parameters(connection)
        if connection.vendor == "mysql":
            # The plain _bin collation pads with spaces before it compares.
            mariadb = getattr(connection, "mysql_is_mariadb", False)
            parameters["collation"] = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
        return parameters


class PresentIndex(Index):
    """Holds only the rows in which its first column is set, where the database can.

    The predicate is `IS NOT NULL` because that one survives generic query plans.
    """

    def create_sql(
        self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor, using: str = "", **kwargs: Any
    ) -> Any:
        if schema_editor.connection.features.supports_partial_indexes:
            column = self.fields_orders[0][0]
            partial = Index(fields=self.fields, name=self.name, condition=Q(**{f"{column}__isnull": False}))
            return partial.create_sql(model, schema_editor, using=using, **kwargs)
        return super().create_sql(model, schema_editor, using=using, **kwargs)


class StatementNow(Now):
    """The database's time, in UTC on every database: MySQL's own now is in the session's time zone."""

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> tuple[str, Any]:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **context)
