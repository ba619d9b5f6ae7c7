"""The vocabulary of blocks: each file has the parameters of one, and the text in which they are used."""
