"""Every history pass that a policy can name, by the word after `do`. A new strategy is a file and a line here."""

from refold.reducers.history.tail import Tail
from refold.reducers.history.token_tail import TokenTail

Pass = Tail | TokenTail
