"""GRPO's formulas, against numbers worked out by hand."""

from math import exp, log

import pytest
import torch

from stepgraph.algorithms import grpo

pytestmark = pytest.mark.torch
ONES = torch.ones(1, 2)


def test_an_advantage_counts_standard_deviations_from_the_mean_of_its_group():
    found = grpo.advantages([0.0, 1.0, 5.0, 7.0], [3, 3, 9, 9])
    assert torch.allclose(found, torch.tensor([-1.0, 1.0, -1.0, 1.0]))


def test_groups_may_be_interleaved():
    found = grpo.advantages([0.0, 5.0, 1.0, 7.0], [3, 9, 3, 9])
    assert torch.allclose(found, torch.tensor([-1.0, -1.0, 1.0, 1.0]))


def test_equals_have_no_advantage_at_all_not_even_a_rounding_error():
    assert grpo.advantages([1 / 3] * 7, [0] * 7).tolist() == [0.0] * 7


def test_a_ratio_beyond_the_clip_gains_no_more():
    new, old = torch.tensor([[log(2.0), 0.0]]), torch.zeros(1, 2)
    loss, held = grpo.clipped_loss(new, old, torch.tensor([1.0]), ONES, clip=0.2)
    assert loss.item() == pytest.approx(-(1.2 + 1.0) / 2)
    assert held.item() == 0.5


def test_a_ratio_that_makes_a_bad_answer_likelier_is_never_clipped():
    new = torch.tensor([[log(2.0), log(2.0)]])
    loss, held = grpo.clipped_loss(new, torch.zeros(1, 2), torch.tensor([-1.0]), ONES, clip=0.2)
    assert loss.item() == pytest.approx(2.0)
    assert held.item() == 0.0


def test_padding_is_not_part_of_an_answer_and_length_has_no_weight():
    values = torch.tensor([[1.0, 9.0, 9.0], [1.0, 1.0, 1.0]])
    mask = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    assert grpo.token_mean(values, mask).tolist() == [1.0, 1.0]


def test_k3_is_zero_for_equals_and_positive_either_way():
    here = torch.tensor([[-1.0, -2.0]])
    assert grpo.k3(here, here, ONES).item() == 0.0
    assert grpo.k3(here, here + 0.5, ONES).item() == pytest.approx(exp(0.5) - 1.5)
    assert grpo.k3(here, here - 0.5, ONES).item() == pytest.approx(exp(-0.5) - 0.5)


def test_k3_is_the_divergence_on_average():
    policy, reference = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.4, 0.4, 0.2])
    each = grpo.k3(policy.log()[:, None], reference.log()[:, None], torch.ones(3, 1))
    assert (policy * each).sum().item() == pytest.approx((policy * (policy / reference).log()).sum().item(), abs=1e-6)


def test_descending_the_loss_makes_the_better_answer_likelier():
    new = torch.zeros(2, 1, requires_grad=True)
    terms = {"clip": 0.2, "kl": 0.0, "reference": None}
    grpo.loss(new, torch.zeros(2, 1), torch.tensor([1.0, -1.0]), torch.ones(2, 1), **terms).loss.backward()
    assert new.grad[0, 0] < 0 < new.grad[1, 0]


def test_the_reference_pulls_with_its_weight():
    new, reference = torch.zeros(1, 2), torch.full((1, 2), -0.5)
    terms = {"clip": 0.2, "kl": 0.1, "reference": reference}
    found = grpo.loss(new, new, torch.tensor([0.0]), ONES, **terms)
    assert found.loss.item() == pytest.approx(0.1 * found.kl.item())
    assert found.kl.item() > 0
