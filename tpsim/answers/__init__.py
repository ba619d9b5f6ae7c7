"""One function per verb: reads the question, composes the floors below, returns a value that reports itself."""
