"""The benchmark: Fencepost beside Celery and Dramatiq, and what it does after a death and under load. `make bench`."""
