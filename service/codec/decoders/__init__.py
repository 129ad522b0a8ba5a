"""Processes that decode the images and forms of strangers, and can be killed.

A thread cannot be ended: one image that takes minutes, or all memory, would take them from every request. `pool` is the
service's side, `child` the process, `channel` what passes between them.
"""
