"""What an operator enters before an action is carried out."""

import json
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from django_idempotency.core.replies import NO_BODY


class ReasonForm(forms.Form):
    """The reason, which is kept in the audit trail."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_("Kept in the audit trail together with your name."),
    )


class LandedForm(ReasonForm):
    """The response that every retry gets from now on."""

    field_order = ["status", "content_type", "body", "reason"]

    status = forms.IntegerField(label=_("Status"), min_value=200, max_value=599, initial=200)
    content_type = forms.CharField(label=_("Content type"), max_length=255, initial="application/json")
    body = forms.CharField(
        label=_("Body"), required=False, strip=False, widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"})
    )

    def clean_content_type(self) -> str:
        kind = str(self.cleaned_data["content_type"])
        if not kind.isascii() or not kind.isprintable():
            raise forms.ValidationError(
                _("Enter a content type of printable ASCII characters, such as application/json.")
            )
        return kind

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        kind, body = data.get("content_type", ""), data.get("body", "")
        if body and data.get("status") in NO_BODY:
            self.add_error("body", _("A response with this status has no body."))
        if body and kind.partition(";")[0].strip() == "application/json":
            try:
                json.loads(body)
            except ValueError:
                self.add_error("body", _("The content type is JSON, but this is not valid JSON."))
        return data
