"""Selection strategies: functions `(context, **options) -> SelectionResult`, named in `offline.selection.registry`."""
