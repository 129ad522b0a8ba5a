"""Processes that decode untrusted images and forms, and can be killed.

A thread cannot be killed: one image that takes minutes, or all memory, would take them from every request. `pool` is
the service's side, `child` the process, `channel` the messages between them.
"""
