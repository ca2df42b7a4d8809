"""What losses of tasks are beside plain functions: rows that meet one another, outputs that a teacher has too."""
