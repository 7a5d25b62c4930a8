"""Questions and their scores. Nothing here needs a tensor library."""

from stepgraph.data.check import answer_tokens, build_task, check_data
from stepgraph.data.component import Data, PromptStream, Rewards

__all__ = ["Data", "PromptStream", "Rewards", "answer_tokens", "build_task", "check_data"]
