"""Models, layouts and the programs that they lower to; nothing here knows a machine."""
