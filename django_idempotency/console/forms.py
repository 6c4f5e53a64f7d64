"""What an operator enters before an action is carried out."""

import json
from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _

from django_idempotency.console.responses import FILL_IN, parse_headers
from django_idempotency.core.replies import NO_BODY, Headers, Reply


class ReasonForm(forms.Form):
    """The reason, which is kept in the audit trail."""

    has_preview: ClassVar[bool] = False

    reason = forms.CharField(
        label=_("Reason"),
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_("Kept in the audit trail together with your name."),
    )


class LandedForm(ReasonForm):
    """The response that every retry gets from now on."""

    has_preview = True
    field_order = ["status", "content_type", "headers", "body", "no_body", "reason"]

    status = forms.IntegerField(label=_("Status"), min_value=200, max_value=599)
    content_type = forms.CharField(label=_("Content type"), max_length=255, initial="application/json")
    headers = forms.CharField(
        label=_("Headers"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "dir": "ltr"}),
        help_text=_("One on each line, such as “Location: /payments/17/”."),
    )
    body = forms.CharField(
        label=_("Body"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "dir": "ltr"}),
    )

    def clean_content_type(self) -> str:
        kind = str(self.cleaned_data["content_type"])
        if not kind.isascii() or not kind.isprintable():
            raise forms.ValidationError(
                _("Enter a content type of printable ASCII characters, such as application/json.")
            )
        return kind

    def clean_headers(self) -> Headers:
        text = str(self.cleaned_data["headers"])
        _require_filled_in(text)
        return parse_headers(text)

    def clean_body(self) -> str:
        text = str(self.cleaned_data["body"])
        _require_filled_in(text)
        return text

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if "body" in data:
            self._check_body(data["body"], data)
        return data

    def _check_body(self, body: str, data: dict[str, Any]) -> None:
        has_none = data.get("status") in NO_BODY
        if body and has_none:
            self.add_error("body", _("A response with this status has no body."))
        if body and data.get("content_type", "").partition(";")[0].strip() == "application/json":
            try:
                json.loads(body)
            except ValueError:
                self.add_error("body", _("The content type is JSON, but this is not valid JSON."))

    @property
    def reply(self) -> Reply:
        """Return the response that was entered."""
        data = self.cleaned_data
        return make_reply(data["status"], data["content_type"], data["headers"], data["body"])


class EnteredForm(LandedForm):
    """The same response, entered on a page: an empty body has to be meant."""

    no_body = forms.BooleanField(label=_("The response has no body"), required=False)

    def _check_body(self, body: str, data: dict[str, Any]) -> None:
        super()._check_body(body, data)
        if body and data["no_body"]:
            self.add_error("no_body", _("There is a body above: delete it, or clear this box."))
        if not body and not data["no_body"] and data.get("status") not in NO_BODY:
            self.add_error("body", _("Enter the body, or tick “The response has no body”: every retry would get none."))


def choose_page_form(form: type[ReasonForm]) -> type[ReasonForm]:
    """Return the form of a page for an action's form, which commands fill in as well."""
    return EnteredForm if form is LandedForm else form


def make_reply(status: int, content_type: str, headers: Headers, body: str) -> Reply:
    """Return the response to store. One without a body has no content type."""
    kind = (("Content-Type", content_type),) if body else ()
    return Reply(status, (*kind, *headers), body.encode())


def _require_filled_in(text: str) -> None:
    if FILL_IN in text:
        raise forms.ValidationError(
            _("Replace each “%(mark)s” by the value of this request, or delete it."), params={"mark": FILL_IN}
        )
