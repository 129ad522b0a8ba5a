"""Selection strategies: functions `(context, **options) -> Subnetwork`, named in `offline.selection.registry`."""
