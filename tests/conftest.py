"""How many examples property tests draw: some by default; few for tests/mutants.py; thousands with

``pytest tests/meaning --hypothesis-profile=deep``.
"""

from hypothesis import HealthCheck, Phase, settings

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]
settings.register_profile("some", max_examples=60, deadline=None, suppress_health_check=SLOW)
settings.register_profile("few", settings.get_profile("some"), max_examples=20, phases=[Phase.explicit, Phase.generate])
settings.register_profile("deep", settings.get_profile("some"), max_examples=3000)
if settings.get_current_profile_name() in ("default", "ci"):  # not where another was asked for
    settings.load_profile("some")
