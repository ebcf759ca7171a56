"""The merged pull request: the base says `KVCacheSpec`; subclasses re-annotate and narrow ``__init__``."""
