"""The command line: read, call one function, write. The only floor that knows click."""
