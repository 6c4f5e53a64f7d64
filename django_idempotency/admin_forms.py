"""Django's admin: a double click on Save adds one object::

    class OrderAdmin(IdempotentAdminMixin, ModelAdmin): ...

The form for a new object carries its key in a hidden field.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from django_idempotency.conf import Arguments
from django_idempotency.decorators import protect
from django_idempotency.exceptions import Misplaced

__all__ = ["IdempotentAdminMixin"]

if TYPE_CHECKING:
    _ModelAdmin = ModelAdmin[Any]
else:
    _ModelAdmin = object

_INVALID: Final = 422
_POLICY: Final[Mapping[str, Any]] = {
    "methods": {"POST"},
    "mode": "atomic",
    "required": False,  # other clients may post to the page
    "wait": timedelta(seconds=5),  # lets a second click wait for the response to the first
    "store": lambda status: status != _INVALID,
    "published": False,  # the address of an admin may be a secret
}


class IdempotentAdminMixin(_ModelAdmin):
    """Protects the form for a new object, and "Save as new".

    `idempotency` has the policy's arguments that differ from the mixin's.
    """

    idempotency: Mapping[str, Any] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        order = [each for each in cls.__mro__ if each in (ModelAdmin, IdempotentAdminMixin)]
        if order == [ModelAdmin, IdempotentAdminMixin]:
            name = cls.__name__
            raise Misplaced(f"Put the mixin before the admin it protects: class {name}(IdempotentAdminMixin, …).")
        if ModelAdmin in order:
            arguments = {**_POLICY, **cls.idempotency}
            cls.add_view = _protected(cls.add_view, arguments)  # type: ignore[method-assign] # with its own policy
            if cls.save_as:
                operation = f"{arguments['operation']}.save_as_new" if "operation" in arguments else ""
                arguments |= {"operation": operation, "skip": _changes}
                cls.change_view = _protected(cls.change_view, arguments)  # type: ignore[method-assign]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], add: bool = False, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the key to a form that makes an object. One with errors has another status, so it is not stored."""
        response: Any = super().render_change_form(request, context, add, *args, **kwargs)
        if add or self.save_as:
            response.context_data["idempotency_form"] = response.resolve_template(response.template_name)
            response.template_name = "django_idempotency/admin_form.html"
            if request.method == "POST" and (add or not _changes(request)):
                response.status_code = _INVALID
        return response  # type: ignore[no-any-return]


def _changes(request: HttpRequest) -> bool:
    """True if the form of an object changes it. "Save as new" makes another one."""
    return "_saveasnew" not in request.POST


def _protected(view: Callable[..., Any], arguments: Mapping[str, Any]) -> Callable[..., Any]:
    """Protect a view of the admin, and check the permission before a stored response is sent."""
    view = getattr(view, "_of_the_admin", view)  # what the base class has protected with its policy
    protected = protect(Arguments(arguments), view)

    @wraps(protected)
    def permitted(admin: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        is_change = arguments.get("skip") is _changes and _changes(request)
        if not is_change and not admin.has_add_permission(request):
            raise PermissionDenied
        return protected(admin, request, *args, **kwargs)

    permitted.__dict__["_of_the_admin"] = view
    return permitted
