"""The compiled library; its functions take and return arrays, addresses and scalars only."""
