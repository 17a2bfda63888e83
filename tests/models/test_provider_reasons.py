"""What vendors say of a refused request: which class it has, and that it is where the end of a run is
told.
"""

import pytest

from refold.engine import Agent
from refold.reducers.vocabulary import FailureClass
from refold.replay.summary import summary
from refold.store import MemoryStore
from support.wire import COUNTS, ON_THE_WIRE, SECRET, Server, Wire, chat, made, piece, refused, status

pytestmark = ON_THE_WIRE

SPENT = "You exceeded your current quota, please check your plan and billing details."
OPENAI_SPENT = {"error": {"message": SPENT, "type": "insufficient_quota", "code": "insufficient_quota"}}
OPENAI_BUSY = "Rate limit reached for gpt-4: Limit 3, Used 3. Please try again in 20s. Visit platform.openai.com/account/billing."
GEMINI_SPENT = {"error": {"code": 429, "message": SPENT, "status": "RESOURCE_EXHAUSTED"}}
GEMINI_BUSY = {
    "error": {"code": 429, "message": f"{SPENT} Please retry in 32.4s.", "status": "RESOURCE_EXHAUSTED"}
}
ANTHROPIC_SPENT = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."


@pytest.mark.parametrize(
    ("name", "code", "body", "failure"),
    [
        pytest.param("openai:test", 429, OPENAI_SPENT, FailureClass.QUOTA, id="OpenAI"),
        pytest.param("openai-responses:test", 429, OPENAI_SPENT, FailureClass.QUOTA, id="OpenAI responses"),
        pytest.param(
            "openai:test",
            429,
            {"error": {"message": OPENAI_BUSY, "code": "rate_limit_exceeded"}},
            FailureClass.RATE_LIMIT,
            id="OpenAI, busy, with a word about billing",
        ),
        pytest.param(
            "anthropic:claude-test",
            400,
            {"type": "error", "error": {"type": "invalid_request_error", "message": ANTHROPIC_SPENT}},
            FailureClass.QUOTA,
            id="Anthropic",
        ),
        pytest.param(
            "anthropic:claude-test",
            402,
            {"type": "error", "error": {"type": "billing_error", "message": "Payment required"}},
            FailureClass.QUOTA,
            id="Anthropic, 402",
        ),
        pytest.param("openai:test", 429, GEMINI_SPENT, FailureClass.QUOTA, id="Gemini"),
        pytest.param("openai:test", 429, GEMINI_BUSY, FailureClass.RATE_LIMIT, id="Gemini, for some seconds"),
        pytest.param(
            "openai:test",
            402,
            {"error": {"message": "Insufficient Balance", "type": "unknown_error"}},
            FailureClass.QUOTA,
            id="DeepSeek",
        ),
        pytest.param(
            "openai:test",
            402,
            {"error": {"message": "Insufficient credits. Add more.", "code": 402}},
            FailureClass.QUOTA,
            id="OpenRouter",
        ),
        pytest.param(
            "openai:test",
            403,
            {"code": "permission-denied", "error": "Your team has used all available credits."},
            FailureClass.QUOTA,
            id="xAI",
        ),
        pytest.param(
            "openai:test",
            429,
            {"error": {"message": "suspended", "type": "exceeded_current_quota_error"}},
            FailureClass.QUOTA,
            id="Moonshot",
        ),
    ],
)
async def test_an_account_without_money_is_no_rate_limit(
    server: Server, name: str, code: int, body: object, failure: FailureClass
) -> None:
    """What vendors say of a used-up quota has a class of its own; a limit that passes by itself stays a rate
    limit.
    """
    server.script = status(code, body)
    assert failure is (await refused(server, name)).failure


@pytest.mark.parametrize(
    ("code", "body", "ended", "reason"),
    [
        pytest.param(429, OPENAI_SPENT, "provider:quota", f"insufficient_quota: {SPENT}", id="quota"),
        pytest.param(
            401,
            {"error": {"message": f"Incorrect API key provided: {SECRET}.", "code": "invalid_api_key"}},
            "provider:auth",
            "invalid_api_key: Incorrect API key provided: [key].; check the key in REFOLD_API_KEY",
            id="key",
        ),
        pytest.param(
            404,
            {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}},
            "provider:bad_request",
            "model_not_found: The model `x` does not exist",
            id="model",
        ),
        pytest.param(400, "<p>\n" * 900, "provider:bad_request", "<p> <p> <p> ", id="a page, cut"),
        pytest.param(
            400,
            {"error": {"message": "This model's maximum context length is 8 tokens"}},
            "context_overflow",
            "This model's maximum context length is 8 tokens",
            id="context",
        ),
    ],
)
async def test_the_providers_reason_is_in_the_result(
    server: Server, code: int, body: object, ended: str, reason: str
) -> None:
    """A run that one refused request ends says why in the provider's words: from Python and in its summary,
    without the key.
    """
    server.script = status(code, body)
    store = MemoryStore()
    async with made(server) as model:
        result = await Agent(model, store=store).run("Go.", run_id="r")
        again = await Agent(model, store=store).resume("r").result()
    assert 1 == len(server.requests)
    assert ended == result.outcome.code
    assert result.outcome.provider_error.startswith(reason)
    assert len(result.outcome.provider_error) <= 503
    assert SECRET not in repr(result)
    about, _ = await summary(store, "r")
    assert [result.outcome.provider_error] * 2 == [again.outcome.provider_error, about.provider_error]


async def test_a_run_that_ends_well_has_no_providers_reason(server: Server) -> None:
    """A request that failed and was made again leaves no reason at the end."""
    answers = iter([status(500, "oops"), chat(piece({"content": "Hi."}, "stop"), COUNTS)])

    def script(wire: Wire) -> None:
        next(answers)(wire)

    server.script = script
    async with made(server) as model:
        result = await Agent(model, policy={"retry": {"initial": 0, "jitter": {"add": 0}}}).run("Go.")
    assert ("end_turn", "", 2) == (result.outcome.code, result.outcome.provider_error, len(server.requests))
