"""What designs share: metadata, the batch, kernels, and the managers of those without `S`. None mentions a builder."""
