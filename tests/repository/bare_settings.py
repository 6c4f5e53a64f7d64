"""The least that the package needs of a project."""

SECRET_KEY = "for tests only"
USE_TZ = True
INSTALLED_APPS = ["django_idempotency"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
