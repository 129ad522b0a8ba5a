"""Selection strategies: functions `(context, **options) -> Subnetwork`, named in
`demur.offline.selection.registry`."""
