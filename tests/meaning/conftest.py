"""How many examples are drawn: few by default, thousands with ``pytest tests/meaning --hypothesis-profile=deep``."""

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]
settings.register_profile("meaning", max_examples=60, deadline=None, suppress_health_check=SLOW)
settings.register_profile("deep", max_examples=3000, deadline=None, suppress_health_check=SLOW)
if settings.get_current_profile_name() == "default":
    settings.load_profile("meaning")
