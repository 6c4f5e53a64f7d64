"""Run by a Python that has the built package and Django, but neither Django REST framework nor Celery."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import django
from django.core.management import call_command

import django_idempotency

optional = [name for name in ("rest_framework", "celery") if find_spec(name)]
if optional:
    raise SystemExit(f"This environment is not bare: it has {' and '.join(optional)}.")
if "site-packages" not in Path(django_idempotency.__file__).parts:
    raise SystemExit(f"This is the checkout, not the installed package: {django_idempotency.__file__}.")
sys.path.append(str(Path(__file__).parent))
os.environ["DJANGO_SETTINGS_MODULE"] = "bare_settings"
django.setup()
call_command("check", fail_level="WARNING")
call_command("migrate", verbosity=0)
