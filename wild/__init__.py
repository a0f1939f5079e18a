"""Public libraries with custom gradients: each is used as its documentation does, harvested, and judged by hand."""
