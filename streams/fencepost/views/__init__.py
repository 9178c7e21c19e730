"""What is derived from records: triggers by rules over other topics, alerts and counts from the history.

Runs as processes of their own, in consumer groups of their own; nothing of the scheduling depends on them. Only
`intake.py` and `credentials.py` import faust, which the extra `fencepost[views]` installs.
"""
