"""Engines, trainers and others: what a phase's `use` calls. Each stack is a package, imported when it is used."""
