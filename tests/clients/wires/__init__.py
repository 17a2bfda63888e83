"""The wires that the model server speaks."""

from clients.wires.chat import Chat
from clients.wires.gemini import Gemini
from clients.wires.protocol import Wire
from clients.wires.responses import Responses

WIRES: tuple[Wire, ...] = (Chat(), Responses(), Gemini())
