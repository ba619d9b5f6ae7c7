"""Array types over a mesh: what shards, what is owed, the moves between types, and products of sharded arrays."""
