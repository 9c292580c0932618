"""Pipelines start their workers as they are told, whatever is the default of `multiprocessing`."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from support.child_processes import run_python
from support.pipelines import indices
from support.providers import IndexProvider
from support.scripts import messages

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


@pytest.mark.wide
def test_a_fork_server_may_be_the_default(tmp_path: Path) -> None:
    # As from Python 3.14 on.
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import multiprocessing
            from support.pipelines import indices, make_iterator, shuffled, worker_pids
            from support.providers import IndexProvider

            from accvlab.dali_pipeline_framework import DataLoader


            def main():
                multiprocessing.set_start_method("forkserver")
                arguments = {"num_workers": 1, "output_type": "numpy"}
                for more in ({}, {"start_method": "forkserver"}):
                    with DataLoader(shuffled(IndexProvider(8)), **arguments, **more) as loader:
                        print(indices(loader), len(worker_pids()))
                with make_iterator(shuffled(IndexProvider(8)), py_num_workers=1) as iterator:
                    print(indices(iterator), len(worker_pids()))
                print(worker_pids())


            if __name__ == "__main__":
                main()
        """)
    )
    result = run_python(script)
    assert messages(result.stderr) == []
    assert result.stdout == 3 * "[[0, 1, 2, 3], [4, 5, 6, 7]] 1\n" + "[]\n"


class OfAnotherLoader(IndexProvider):
    """Has what a loader delivers that it makes itself, where it loads."""

    def get_data(self, sample_index: int) -> SampleDataGroup:
        with DataLoader(IndexProvider(8), 4, num_workers=0, output_type="numpy") as loader:
            return super().get_data(sum(indices(loader)[0]) + sample_index)


def test_a_forked_worker_may_use_a_loader_itself() -> None:
    faults = FaultPolicy(blocked_after=20)
    provider = OfAnotherLoader(2)
    with DataLoader(provider, 1, num_workers=1, start_method="fork", faults=faults, output_type="numpy") as loader:
        assert indices(loader) == [[6], [7]]
