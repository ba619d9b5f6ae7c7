"""What is asked: scenarios as files and flags state them, resolved to a model, a machine and a layout."""
