"""A tokenizer of sixteen tokens for the digits task, that transformers can save beside a model and load again."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

VOCABULARY = ("<pad>", "<eos>", "<unk>", *"0123456789", "=", "+", ",")


def digits_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character. Its vocabulary is fixed, so that a checkpoint of any run can be read by any other."""
    ids = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
