"""Running a plan: the contract with components, the executors, and what a run leaves behind."""
