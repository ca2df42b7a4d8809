"""The rows of each kind of task: from tokenized examples to the fields of a batch."""
