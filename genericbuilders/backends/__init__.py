"""Back ends, one module each: metadata, builder, implementation and the adapter that ties them."""
