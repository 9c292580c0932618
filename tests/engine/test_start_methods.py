"""Pipelines start their workers as they are told, whatever is the default of `multiprocessing`."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


@pytest.mark.timeout(60)
def test_a_fork_server_may_be_the_default(tmp_path: Path) -> None:
    # As from Python 3.14 on.
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            import multiprocessing
            import sys

            sys.path.insert(0, {str(Path(__file__).parents[1])!r})

            from support.pipelines import indices, make_iterator, shuffled, worker_pids
            from support.providers import IndexProvider

            from accvlab.dali_pipeline_framework.pipeline import DataLoader, PipelineDefinition


            def main():
                multiprocessing.set_start_method("forkserver")
                arguments = {{"num_workers": 1, "output_type": "numpy"}}
                for more in ({{}}, {{"start_method": "forkserver"}}):
                    definition = PipelineDefinition(shuffled(IndexProvider(8)))
                    with DataLoader(definition, 4, **arguments, **more) as loader:
                        print(indices(loader), len(worker_pids()))
                with make_iterator(shuffled(IndexProvider(8)), py_num_workers=1) as iterator:
                    print(indices(iterator), len(worker_pids()))
                print(worker_pids())


            if __name__ == "__main__":
                main()
        """)
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=50)
    assert result.stderr == ""
    assert result.stdout == 3 * "[[0, 1, 2, 3], [4, 5, 6, 7]] 1\n" + "[]\n"
