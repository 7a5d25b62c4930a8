"""Few examples: these folders are run against every broken copy of the compiler (tests/mutants.py)."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile("compiler", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "few", settings.get_profile("compiler"), max_examples=20, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("compiler")
