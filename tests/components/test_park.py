"""Parking: the memory is really free while a resource is away, and every bit comes back."""

import pytest
import torch
from torch import nn

from stepgraph.components.torch.park import Park, anonymous_bytes
from stepgraph.errors import RunError

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


@pytest.fixture
def park(tmp_path):
    def make(tensors):
        return Park("policy", lambda: tensors, CPU, tmp_path / "park")

    return make


def several():
    torch.manual_seed(0)
    return {
        "matrix": nn.Parameter(torch.randn(7, 5)),
        "narrow": torch.randn(9).to(torch.bfloat16),
        "scalar": torch.tensor(3.5),
        "numbers": torch.arange(5),
        "empty": torch.zeros(0, 3),
        "turned": torch.randn(4, 6).t(),
    }


@pytest.mark.parametrize("rounds", [1, 3])
def test_every_bit_and_shape_comes_back(park, rounds):
    tensors = several()
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    parked = park(tensors)
    for _ in range(rounds):
        parked.move("host")
        parked.move("device")
    for name, tensor in tensors.items():
        assert tensor.dtype == before[name].dtype
        assert torch.equal(tensor.detach(), before[name])


def test_a_parked_tensor_reads_as_empty_instead_of_crashing(park):
    tensors = several()
    park(tensors).move("host")
    assert all(tensor.numel() == 0 for tensor in tensors.values())
    assert tensors["matrix"].sum().item() == 0.0


def test_a_tensor_can_be_read_while_all_stay_parked(park):
    tensors = several()
    wanted = tensors["matrix"].detach().clone()
    parked = park(tensors)
    parked.move("host")
    assert torch.equal(parked.parked("matrix"), wanted)
    assert tensors["matrix"].numel() == 0


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_hundred_megabytes_leave_the_memory_and_return(park, rounds):
    layers = nn.Sequential(*[nn.Linear(1000, 1000) for _ in range(25)])
    parked = park(dict(layers.named_parameters()))
    for _ in range(rounds - 1):
        parked.move("host")
        parked.move("device")
    size, full = parked.nbytes, anonymous_bytes()
    freed, away = parked.move("host"), anonymous_bytes()
    returned, back = parked.move("device"), anonymous_bytes()
    assert size > 100e6
    assert full - away > 0.9 * size
    assert back - away > 0.9 * size
    assert size >= freed > 0.9 * size
    assert size >= returned > 0.9 * size


def test_what_somebody_still_holds_is_not_said_to_be_freed(park):
    tensors = {"big": torch.randn(5_000_000)}
    held = tensors["big"].detach()
    assert park(tensors).move("host") < 5_000_000
    assert held.numel() == 5_000_000


def test_what_is_moved_to_none_is_lost_until_it_is_filled(park):
    tensors = several()
    parked = park(tensors)
    parked.move("none")
    parked.move("device")
    assert parked.lost
    assert tensors["matrix"].abs().sum() == 0
    assert tensors["matrix"].shape == (7, 5)
    parked.filled()
    assert not parked.lost


def test_nothing_can_go_to_host_and_come_back_as_zeros(park):
    tensors = several()
    parked = park(tensors)
    for place in ("none", "host", "device"):
        parked.move(place)
    assert tensors["matrix"].abs().sum() == 0


def test_a_second_move_to_the_same_place_does_nothing(park):
    parked = park(several())
    assert parked.move("device") == 0
    parked.move("host")
    assert parked.move("host") == 0


def test_a_place_that_is_not_there_is_refused(park):
    with pytest.raises(RunError, match=r"cannot move 'policy' to 'hots', did you mean 'host'\?"):
        park(several()).move("hots")


def test_a_full_disk_is_told_and_leaves_everything_in_place(park, monkeypatch):
    tensors = several()
    before = tensors["matrix"].detach().clone()
    parked = park(tensors)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(RunError, match=r"cannot park 'policy' in .*: No space left on device; make room there, or set"):
        parked.move("host")
    assert parked.place == "device"
    assert torch.equal(tensors["matrix"].detach(), before)


def test_no_file_is_left_behind(park, tmp_path):
    parked = park(several())
    parked.move("host")
    assert list((tmp_path / "park").iterdir()) == []


def test_saving_one_tensor_that_came_back_does_not_save_all(park, tmp_path):
    tensors = {"small": torch.randn(10), "big": torch.randn(100_000)}
    parked = park(tensors)
    parked.move("host")
    parked.move("device")
    torch.save(tensors["small"], tmp_path / "small.pt")
    assert (tmp_path / "small.pt").stat().st_size < 10_000
