from collections.abc import Iterator

class error(Exception): ...

class Options:
    case_sensitive: bool
    log_errors: bool
    max_mem: int
    never_capture: bool
    never_nl: bool

class _Match:
    def span(self, group: int = 0) -> tuple[int, int]: ...

class _Regexp:
    @property
    def programsize(self) -> int: ...
    def search(
        self, text: str | bytes, pos: int | None = None, endpos: int | None = None
    ) -> _Match | None: ...
    def finditer(
        self, text: str | bytes, pos: int | None = None, endpos: int | None = None
    ) -> Iterator[_Match]: ...

def compile(pattern: str, options: Options | None = None) -> _Regexp: ...
