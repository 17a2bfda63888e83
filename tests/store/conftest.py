"""The conformance suite is no test module of ours, so pytest must be told to rewrite its assertions."""

import pytest

pytest.register_assert_rewrite("refold.store.testing")
