"""Every field of every file wrong in every way: the answer is a refusal with its place, or visibly another question."""
