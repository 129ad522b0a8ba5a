"""The models that are served: from folders to queues, watched, swapped and retired."""
