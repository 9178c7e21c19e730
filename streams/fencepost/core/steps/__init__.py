"""What each event does to a task. The table in `core/table.py` says which of these is legal when."""
