"""Looking back over a namespace: whether the promise held, who owned what, and what state a task was in at a time."""
