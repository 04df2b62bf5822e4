"""Pictures of results with matplotlib (the extra ``plots``), which no other module loads."""
