"""The generic design with a covariant ``S``: a read-only spec, and a graph-support hook that takes any spec."""
