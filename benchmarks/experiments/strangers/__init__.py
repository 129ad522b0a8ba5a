"""The default on data and networks that nobody chose for a strength, beside a temperature."""
