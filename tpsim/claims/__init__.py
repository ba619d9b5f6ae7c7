"""Claims of a plan or an expression held against runs on simulated devices: what the verb `verify` is made of."""
