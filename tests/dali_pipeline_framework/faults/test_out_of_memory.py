"""A process with a loader, and all its workers, in a control group in which memory runs out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from loader_processes import script
from memory_groups import memory_group
from support.child_processes import communicate

LIMIT_BYTES = 1 << 30  # more than twice what the process with the loader takes: the kernel ends the largest one

BODY = """
import logging
from pathlib import Path
from disturbed_loaders import loader_of, stream
logging.basicConfig()
provider = DeadlyProvider(Path({folder!r}), "eat_memory", {{17: 1}})
received = stream(loader_of(provider, faults=FaultPolicy(restarts=1), start_method={method!r}))
print(received == stream(loader_of(ImageProvider(), num_workers=0)))
"""


@pytest.mark.wide
@pytest.mark.timeout(120)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_group_is_named_and_the_stream_goes_on(tmp_path: Path, method: str) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    with memory_group(LIMIT_BYTES) as group:
        if group is None:
            pytest.skip("a control group needs rights that this process does not have")
        joining = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$0" "$@"']
        body = (
            f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n{BODY.format(folder=str(folder), method=method)}"
        )
        started = script(tmp_path, body, joining)
        try:
            stdout, stderr = communicate(started, 100)
        finally:
            started.kill()
    assert (stdout, started.returncode) == ("True\n", 0), stderr
    told = (
        r"was ended by SIGKILL \(because memory ran out, which the kernel has counted in oom_kill of its control"
    )
    assert re.search(rf"{told} group: use fewer workers .*\), while it loaded sample 17 ", stderr)
