"""The mathematics of prediction and rejection. Pure NumPy, shared by the service and the offline job."""
