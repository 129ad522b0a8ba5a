"""The Laplace posterior over the subnetwork: curvature, prior, factor, calibration."""
