"""What all designs share: metadata, the batch, kernels and a manager base. None of it mentions a builder."""
