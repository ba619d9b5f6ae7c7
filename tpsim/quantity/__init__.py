"""The ground floor: errors, units, one arithmetic for sizes, and the files that are read."""
