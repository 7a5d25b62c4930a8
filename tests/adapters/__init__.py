"""The loops of miles and slime, held to the calls that were recorded from their own drivers."""
