"""Selection strategies: functions `(context, **options) -> Subnetwork`, named in
`probity.offline.selection.registry`."""
