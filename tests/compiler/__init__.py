"""The compiler, pass by pass; what a graph means is tests/meaning's."""
