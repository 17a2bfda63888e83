"""The pytest plugin: options, markers and fixtures. It imports the engine only when a fixture is used."""

pytest_plugins = ["refold.testing.coverage"]
