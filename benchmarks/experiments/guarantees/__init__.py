"""Whether what is guaranteed holds over random splits of real data."""
