"""Processes that read what strangers send, images, forms and texts, and can be killed.

A thread cannot be killed: one image that takes minutes, or all memory, would take them from every request, and so would
a text with a tokenizer that is slow at it. `pool` is the service's side, `child` the process, `channel` the messages
between them.
"""
