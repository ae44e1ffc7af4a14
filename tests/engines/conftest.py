"""Tests of the engines for clusters, with real clusters: `make test-engines`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from adapter_client import AdapterClient
from machines import why_not_permitted
from slurm_cluster import SlurmCluster


def pytest_report_header() -> str:
    if why := why_not_permitted():
        return f"*** NAMESPACES ARE NOT PERMITTED ({why}): clusters run on loopback, and no node dies or is cut off ***"
    return "clusters: machines in network and pid namespaces"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if why := why_not_permitted():
        terminalreporter.section("namespaces are not permitted", bold=True, red=True)
        terminalreporter.write_line(
            f"Clusters ran on loopback, and tests that kill or cut off nodes were skipped: {why}"
        )


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Path]:
    """Where agents record what they were given."""
    folder = tmp_path / "agents"
    folder.mkdir()
    yield folder


@pytest.fixture
def adapter(request: pytest.FixtureRequest) -> Iterator[Callable[..., AdapterClient]]:
    """Starts an adapter of the file's MODULE on a cluster: `adapter(cluster, VARIABLE="value")`."""
    clients: list[AdapterClient] = []

    def start(cluster: Any, **env: str) -> AdapterClient:
        clients.append(AdapterClient(request.module.MODULE, {**cluster.environment, **env}, cluster.command))
        return clients[-1]

    yield start
    for client in clients:
        if client.process.poll() is None:
            client.close()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


@pytest.fixture
def own_slurm(tmp_path: Path) -> Iterator[SlurmCluster]:
    """For tests that break it."""
    cluster = SlurmCluster(tmp_path / "slurm")
    yield cluster
    cluster.close()
