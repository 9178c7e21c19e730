"""Celery and Dramatiq: their apps run in environments of their own, so nothing here may need more than they have."""
