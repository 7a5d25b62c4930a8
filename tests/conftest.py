"""How many examples property tests draw: some by default; few for tests/mutants.py; thousands with

``pytest tests/meaning --hypothesis-profile=deep``.
"""

from hypothesis import HealthCheck, Phase, settings

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]
settings.register_profile("some", max_examples=60, deadline=None, suppress_health_check=SLOW)
settings.register_profile("few", settings.get_profile("some"), max_examples=20, phases=[Phase.explicit, Phase.generate])
settings.register_profile("deep", settings.get_profile("some"), max_examples=3000)
settings.register_profile("checks", settings.get_profile("some"), derandomize=True)
ours = {"default": "some", "ci": "checks"}  # a change is judged by the same examples each time
if settings.get_current_profile_name() in ours:  # not where another was asked for
    settings.load_profile(ours[settings.get_current_profile_name()])
