"""The engine: scheduler, runner, sampler and the life of a request."""
