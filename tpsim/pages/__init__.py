"""What each verb's answer looks like on a page: from a result to the one table model."""
