"""Files that show whether they still hold what was written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, load_file, save

from secondguess.contracts.sealed import Damaged, metadata, read_json, read_tensors, seal_tensors, write_json_sealed

CONTENT = {"rate": 0.1, "pair": (1, 2), "by": {3: "café \udcff"}, "none": None}


def test_a_sealed_object_is_read_as_json_holds_it(tmp_path: Path) -> None:
    write_json_sealed(tmp_path / "a.json", CONTENT)
    assert read_json(tmp_path / "a.json") == json.loads(json.dumps(CONTENT))


def test_every_changed_byte_of_an_object_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json_sealed(path, CONTENT)
    whole, before = path.read_bytes(), read_json(path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert read_json(path) == before  # white space between the parts
        except Damaged:
            continue
    path.write_bytes(whole[:-20])
    with pytest.raises(Damaged, match=r"a\.json is not a complete JSON object"):
        read_json(path)


def test_an_object_without_a_digest_is_read_only_where_earlier_versions_wrote_such(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"rate": 0.1}')
    assert read_json(tmp_path / "a.json", sealed=False) == {"rate": 0.1}
    with pytest.raises(Damaged, match="does not hold what was written"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("card", [None, {"name": "x"}])
def test_sealed_tensors_are_a_safetensors_file_like_any_other(tmp_path: Path, card: dict[str, str] | None) -> None:
    arrays = {"a": np.arange(7, dtype=np.float32), "b": np.ones((2, 3), dtype=np.int8)}
    path = tmp_path / "a.safetensors"
    path.write_bytes(seal_tensors(save(arrays, metadata=card)))
    assert (card or {}).items() <= metadata(path.read_bytes()).items()
    for read in (load_file(path), load(read_tensors(path))):
        assert {name: array.tolist() for name, array in read.items()} == {n: a.tolist() for n, a in arrays.items()}


def test_every_changed_byte_of_tensors_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    whole = seal_tensors(save({"a": np.arange(7, dtype=np.float32)}, metadata={"name": "x"}))
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert load(read_tensors(path))["a"].tolist() == list(range(7))  # white space in the header
        except Damaged:
            continue
    path.write_bytes(b"")
    with pytest.raises(Damaged, match="not a complete safetensors file"):
        read_tensors(path)
