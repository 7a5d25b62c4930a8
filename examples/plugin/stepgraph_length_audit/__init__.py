"""An example of a plug-in: a phase, a component, and a folder of configuration."""
