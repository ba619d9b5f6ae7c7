"""What every scenario comes to, held in `tpsim.lock`; what moved since, and why: the verbs `check` and `diff`."""
