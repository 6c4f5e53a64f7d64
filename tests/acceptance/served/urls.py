"""The payments service's routes, and one for each mode and each way to answer that it has no use for."""

from django.urls import path

from testproject.urls import urlpatterns as payments
from tests.acceptance.served import answers, bookings

urlpatterns = [
    *payments,
    path("bookings/whole", bookings.whole),
    path("bookings/late", bookings.late),
    path("bookings/atomic", bookings.atomic),
    path("bookings/session", bookings.by_session),
    path("login", bookings.enter),
    path("answers/stream", answers.stream),
    path("answers/buffered", answers.buffered),
    path("answers/file", answers.file),
    path("answers/page", answers.page),
    path("answers/gone", answers.gone),
    path("answers/strict", answers.strict),
    path("answers/unguessable", answers.unguessable),
    path("answers/cookie", answers.cookie),
    path("answers/fails", answers.fails),
    path("answers/corrected", answers.corrected),
]
