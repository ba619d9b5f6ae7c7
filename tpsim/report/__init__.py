"""The one table model and its writers: terminal, Markdown, CSV, JSON, frames."""
