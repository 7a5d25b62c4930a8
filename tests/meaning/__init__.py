"""What a graph means, written a second time without the compiler's code, and the compiler held against it."""
