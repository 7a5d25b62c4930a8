"""Other frameworks' loops as graphs: their arguments to overrides, a plan to their calls, a plan on their objects."""
