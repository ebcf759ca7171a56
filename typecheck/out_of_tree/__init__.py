"""What each design of the builder base costs the builders of vLLM and of projects outside it."""
