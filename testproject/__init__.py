"""A small payments service: the demonstration, the acceptance subject and the conformance fixture in one."""

from importlib.util import find_spec

if find_spec("celery"):  # the core's tests import testproject.databases where it is not installed
    from testproject.celery import app as celery_app  # noqa: F401 - every process that sends messages needs it
