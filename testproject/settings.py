"""Every setting that a deployment may want to change comes from the environment."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import django

from django_idempotency.tasks import beat_schedule
from testproject import policy
from testproject.databases import from_url

BASE_DIR = Path(__file__).resolve().parent.parent
VAR = Path(os.environ.get("TESTPROJECT_VAR", BASE_DIR / "var"))


def switched_on(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")


DEBUG = switched_on("DJANGO_DEBUG")
PRODUCTION = switched_on("DJANGO_PRODUCTION")
SECRET_KEY = "for-demonstration-only-never-use-this-key-for-anything-real"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"
ASGI_APPLICATION = "testproject.asgi.application"
USE_TZ = True
TIME_ZONE = "UTC"
DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000_000
STATIC_URL = "static/"
STATICFILES_DIRS = [("client", BASE_DIR / "clients" / "js")]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "rest_framework.authtoken",
    "django_idempotency",
    "django_idempotency.contrib.outbox",
    "testproject.payments",
]
if find_spec("django_celery_beat"):
    INSTALLED_APPS.append("django_celery_beat")
DESCRIBED = find_spec("drf_spectacular") is not None
if DESCRIBED:
    INSTALLED_APPS.append("drf_spectacular")
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "testproject.policy.StrictPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "testproject.payments.errors.ErrorsAsJson",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
if django.VERSION >= (6, 1):  # the first whose admin has nonces: from there on nothing is allowed without one
    MIDDLEWARE[MIDDLEWARE.index("testproject.policy.StrictPolicy")] = (
        "django.middleware.csp.ContentSecurityPolicyMiddleware"
    )
    TEMPLATES[0]["OPTIONS"]["context_processors"].append("django.template.context_processors.csp")  # type: ignore[index]
    SECURE_CSP = policy.with_nonces()
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django.request": {"handlers": ["stderr"], "level": "ERROR", "propagate": True}},
}

DATABASE_URL = os.environ.get("DATABASE_URL", "sqlite:///db.sqlite3")
DATABASES = {
    "default": {
        **from_url(DATABASE_URL, base=BASE_DIR),
        "ATOMIC_REQUESTS": switched_on("DJANGO_ATOMIC_REQUESTS"),
        "CONN_MAX_AGE": int(os.environ.get("DATABASE_CONN_MAX_AGE", "60")),
        "CONN_HEALTH_CHECKS": True,
    }
}

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
}
if DESCRIBED:
    REST_FRAMEWORK["DEFAULT_SCHEMA_CLASS"] = "drf_spectacular.openapi.AutoSchema"
SPECTACULAR_SETTINGS = {
    "TITLE": "Payments",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "DEFAULT_GENERATOR_CLASS": "django_idempotency.contrib.spectacular.SchemaGenerator",
}

CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL", "filesystem://")
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_DEFAULT_QUEUE = os.environ.get("CELERY_TASK_DEFAULT_QUEUE", "celery")
MAINTENANCE_QUEUE = f"{CELERY_TASK_DEFAULT_QUEUE}.maintenance"  # a long export must not hold them up
try:
    from kombu import Exchange, Queue
except ImportError:  # Celery is not installed
    pass
else:
    CELERY_TASK_QUEUES = [  # a worker without -Q reads both; in production each has workers of its own
        Queue(name, Exchange(name), routing_key=name) for name in (CELERY_TASK_DEFAULT_QUEUE, MAINTENANCE_QUEUE)
    ]
CELERY_TASK_ROUTES = {name: {"queue": MAINTENANCE_QUEUE} for name in beat_schedule()}
every = os.environ.get("IDEMPOTENCY_EVERY_SECONDS")  # runs every maintenance job at this interval, to watch them
CELERY_BEAT_SCHEDULE = beat_schedule()
if every:
    tasks = [name.rpartition(".")[2] for name in CELERY_BEAT_SCHEDULE]
    CELERY_BEAT_SCHEDULE = beat_schedule(**dict.fromkeys(tasks, int(every)))
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, object] = {}
if CELERY_BROKER_URL.startswith("filesystem:"):
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(VAR / "celery" / "messages"),
        "data_folder_out": str(VAR / "celery" / "messages"),
        "control_folder": str(VAR / "celery" / "control"),
        "polling_interval": 0.1,
    }

IDEMPOTENCY = {
    name: float(os.environ[f"IDEMPOTENCY_{name}_SECONDS"])
    for name in ("LEASE", "GRACE", "RETENTION", "PICK_UP", "CLAIM_LIMIT")
    if f"IDEMPOTENCY_{name}_SECONDS" in os.environ
}
if switched_on("IDEMPOTENCY_COUNT_OUTCOMES"):
    IDEMPOTENCY["COUNT_OUTCOMES"] = True
if switched_on("IDEMPOTENCY_PREPARED_STATEMENTS"):
    IDEMPOTENCY["PREPARED_STATEMENTS"] = True

GATEWAY_URL = os.environ.get("GATEWAY_URL", "")  # empty: the same provider, in process
GATEWAY_LEDGER = VAR / "ledger.jsonl"
GATEWAY_TIMEOUT_SECONDS = float(os.environ.get("GATEWAY_TIMEOUT_SECONDS", "10"))
GATEWAY_WEBHOOK_SECRET = os.environ.get("GATEWAY_WEBHOOK_SECRET", "whsec_demo")
CONFORMANCE_COUNTER = VAR / "conformance.counter"
