"""Settings of all tests."""

from __future__ import annotations

import torch
from hypothesis import settings

# Time on a shared machine says nothing; a fixed seed makes a failure in CI one that can be had again.
settings.register_profile("house", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("house")
# With more threads than free cores, every parallel region waits for a thread that does not run.
torch.set_num_threads(1)
