"""A phase of the user's own, in a file beside the graphs."""


def mean(rewards, ctx):
    """Log the mean reward."""
    ctx.log(**{"reward/mean": sum(rewards) / len(rewards)})
