"""The layouts that a scenario leaves open: which there are, what each holds, and less than what seconds none takes."""
