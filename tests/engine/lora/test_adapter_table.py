"""Places are reserved and freed once, loads are answered, and unloads wait for the last sequence."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue

import pytest
import torch

from engine.lora.adapter_config import AdapterError
from engine.lora.adapter_table import AdapterRead, AdapterTable
from engine.lora.stacked_weights import StackedWeights, adapter_bytes
from engine.models.families.registry import read_model_config
from engine.protocol import AdapterReport
from tests.engine.lora.adapters import CPU, MAX_RANK, write_adapter
from tests.engine.models.checkpoints import make_reference, save_checkpoint


class Tabled:
    """A table with two places, and the results of its readers."""

    def __init__(self, folder: Path) -> None:
        reference = make_reference("llama3")
        config = read_model_config(save_checkpoint(reference, folder / "base"))
        write_adapter(folder / "good", reference)
        self.good, self.missing = folder / "good", folder / "missing"
        self.read: SimpleQueue[AdapterRead] = SimpleQueue()
        self.weights = StackedWeights(config, num_adapters=2, max_rank=MAX_RANK, dtype=torch.float32, device=CPU)
        self.table = AdapterTable(self.weights, self.read.put)

    def load(self, name: str, folder: Path) -> list[AdapterReport]:
        """Load and return the reports that follow."""
        self.table.load(name, folder)
        if not (reports := self.table.take_reports()):
            self.table.read(self.read.get(timeout=10))
            reports = self.table.take_reports()
        return reports


@pytest.fixture
def tabled(tmp_path: Path) -> Tabled:
    return Tabled(tmp_path)


def test_a_loaded_adapter_is_found_and_an_unloaded_one_is_not(tabled: Tabled) -> None:
    assert tabled.table.find("one") is None
    (report,) = tabled.load("one", tabled.good)
    assert report == AdapterReport(name="one", change="loaded", digest=report.digest)
    assert tabled.table.names == ["one"]
    assert tabled.table.digests == {"one": report.digest}
    assert tabled.table.unload("one") is None
    assert tabled.table.take_reports() == [AdapterReport(name="one", change="unloaded")]
    assert tabled.table.find("one") is None


def test_no_sequence_may_use_an_adapter_while_it_is_read(tabled: Tabled) -> None:
    tabled.table.load("one", tabled.good)
    assert tabled.table.find("one") is None
    tabled.table.unload("one")
    (report,) = tabled.table.take_reports()
    assert report.change == "refused"


def test_a_failed_load_gives_its_place_back(tabled: Tabled) -> None:
    for _ in range(5):
        (report,) = tabled.load("bad", tabled.missing)
        assert report.change == "refused"
        assert "adapter_config.json: no such file" in (report.error or "")
    assert tabled.load("one", tabled.good)[0].change == "loaded"
    assert tabled.load("two", tabled.good)[0].change == "loaded"


def test_a_full_table_and_a_name_in_use_are_refused(tabled: Tabled) -> None:
    tabled.load("one", tabled.good)
    assert "is ready" in str(tabled.load("one", tabled.good)[0].error)
    tabled.load("two", tabled.good)
    assert "all 2 places are taken" in str(tabled.load("three", tabled.good)[0].error)
    assert AdapterTable.without_places().names == []
    with pytest.raises(AdapterError, match="max_loras"):
        AdapterTable.without_places().load_now("one", tabled.good)


def test_an_unload_waits_for_the_last_sequence_and_admits_no_other(tabled: Tabled) -> None:
    tabled.load("one", tabled.good)
    users = [tabled.table.acquire("one") for _ in range(2)]
    assert tabled.table.unload("one") is users[0]
    assert tabled.table.find("one") is None
    tabled.table.release(users[0])
    assert tabled.table.take_reports() == []
    tabled.table.release(users[1])
    assert tabled.table.take_reports() == [AdapterReport(name="one", change="unloaded")]


def test_each_load_of_a_name_counts_as_another_adapter(tabled: Tabled) -> None:
    tabled.load("one", tabled.good)
    first = tabled.table.find("one")
    tabled.table.unload("one")
    tabled.table.take_reports()
    tabled.load("one", tabled.good)
    second = tabled.table.find("one")
    assert first is not None
    assert second is not None
    assert first.load_id != second.load_id


def test_memory_is_reserved_once(tabled: Tabled) -> None:
    addresses = [
        weights._memory.data_ptr() for projections in tabled.weights.layers for weights in projections.values()
    ]
    num_bytes = sum(
        weights._memory.numel() * weights._memory.element_size()
        for projections in tabled.weights.layers
        for weights in projections.values()
    )
    assert num_bytes == 2 * adapter_bytes(tabled.weights.config, MAX_RANK, torch.float32)
    tabled.load("one", tabled.good)
    assert addresses == [
        weights._memory.data_ptr() for projections in tabled.weights.layers for weights in projections.values()
    ]
