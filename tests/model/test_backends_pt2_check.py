from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from secondguess import Classifier, UserError
from secondguess.model.backends.pt2_check import EXPRESSION, OPERATOR, checked_archive
from secondguess.model.convert import convert_checkpoint

MODEL, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"
CONSTANTS, INPUTS = "data/constants/model_constants_config.json", "data/sample_inputs/model.pt"


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that exists only if one of the archives had its code run."""
    return tmp_path / "code-was-run"


@pytest.fixture
def members(pt2_file: Path) -> dict[str, bytes]:
    """An ordinary archive, member by member, the archive's own folder left out."""
    with zipfile.ZipFile(pt2_file) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def write(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"model/{name}", data)
    return path


@pytest.fixture
def assert_refused(
    tmp_path: Path, members: dict[str, bytes], marker: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Check that an archive with some members replaced is refused before PyTorch is asked to open it."""

    def check(message: str, **replaced: Any) -> None:
        path = write(tmp_path / "evil.pt2", members | replaced.pop("members", {}))
        with monkeypatch.context() as patch:
            patch.setattr(torch.export, "load", lambda *_, **__: pytest.fail("PyTorch was asked to open it"))
            with pytest.raises(UserError, match=f"evil.pt2 was not opened, because .*{message}"):
                Classifier(path)
        assert not marker.exists()

    return check


def edited(data: bytes, edit: Callable[[Any], object]) -> bytes:
    document = json.loads(data)
    edit(document)
    return json.dumps(document).encode()


def payload(marker: Path) -> bytes:
    """A pickle that makes the marker file when it is opened."""

    class Run:
        def __reduce__(self) -> tuple[Any, tuple[str, str]]:
            return open, (str(marker), "w")

    return pickle.dumps(Run())


def torch_file(data: bytes) -> bytes:
    """A file as `torch.save` writes it, around a pickle of our own."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return buffer.getvalue()


def test_the_untouched_members_are_accepted(tmp_path: Path, members: dict[str, bytes]) -> None:
    path = write(tmp_path / "good.pt2", members)
    with zipfile.ZipFile(checked_archive(path)) as copy:
        assert {name.partition("/")[2]: copy.read(name) for name in copy.namelist()} == members
    Classifier(path)


def test_the_payload_is_real(marker: Path) -> None:
    torch.load(io.BytesIO(torch_file(payload(marker))), weights_only=False).close()
    assert marker.exists()


def test_poisoned_sample_inputs_are_not_run(
    tmp_path: Path, members: dict[str, bytes], marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
    for poison in (torch_file(payload(marker)), payload(marker)):
        path = write(tmp_path / "evil.pt2", members | {INPUTS: poison})
        with pytest.raises(UserError, match=r"evil.pt2 is not a torch.export program that can be run here"):
            Classifier(path)
        assert not marker.exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_the_users_own_setting_comes_back(
    tmp_path: Path, members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")
    Classifier(write(tmp_path / "good.pt2", members))
    assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "0"


def test_pickled_weights_are_refused(
    assert_refused: Callable[..., None], members: dict[str, bytes], marker: Path
) -> None:
    def pickle_it(document: Any) -> None:
        document["config"]["head.weight"]["use_pickle"] = True

    weights = edited(members[WEIGHTS], pickle_it)
    assert_refused(
        "weights are pickled", members={WEIGHTS: weights, "data/weights/weight_4": torch_file(payload(marker))}
    )


@pytest.mark.parametrize(
    "name",
    [
        "data/weights/model.pt",
        "data/constants/model.pt",
        "data/constants/custom_obj_0",
        "data/constants/opaque_obj_0",
        "data/aotinductor/model/model.so",
        "data/weights/weight_0.so",
        "data/weights/../../weight_0",
        "models/model.py",
        "code/run.py",
        "extra/a/b",
        "serialized_state_dict.pt",
        "",
    ],
)
def test_unknown_members_are_refused(assert_refused: Callable[..., None], marker: Path, name: str) -> None:
    assert_refused(f"it holds 'model/{name}'", members={name: payload(marker)})


@pytest.mark.parametrize("name", ["opaque_obj_0", "custom_obj_0", "tensor_0_config.json", "../weights/weight_0"])
def test_constants_that_would_be_unpickled_are_refused(
    assert_refused: Callable[..., None], members: dict[str, bytes], name: str
) -> None:
    def add(document: Any) -> None:
        document["config"]["metadata"] = {"path_name": name, "is_param": False, "use_pickle": False}

    assert_refused("weights are the object", members={CONSTANTS: edited(members[CONSTANTS], add)})


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.ops.load_library",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save",
        "torch.ops.custom.run.default",
        "torch.load",
        "torch.hub.load",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "math.__loader__.load_module",
        "builtins.exec",
        "#extension:op",
        "torch.ops.aten.relu.default.__class__.x",
        "torch.ops.aten.relu.default\n",
    ],
)
def test_calls_of_other_functions_are_refused(
    assert_refused: Callable[..., None], members: dict[str, bytes], target: str
) -> None:
    def call(document: Any) -> None:
        document["graph_module"]["graph"]["nodes"][0]["target"] = target

    assert_refused("its graph calls", members={MODEL: edited(members[MODEL], call)})


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "Symbol('s0', positive=print(1))",
        "exec('1')",
        "s0.__class__",
        "lambda: 1",
        "Symbol('s0')['x']",
        "S('1')",
        "Function('f')(1)",
        "1" * 60 + "!",
    ],
)
@pytest.mark.parametrize("place", ["sym_int_values", "tensor_values"])
def test_shapes_that_call_functions_are_refused(
    assert_refused: Callable[..., None], members: dict[str, bytes], expression: str, place: str
) -> None:
    def shape(document: Any) -> None:
        size = {"as_expr": {"expr_str": expression, "hint": {"as_int": 4}}}
        graph = document["graph_module"]["graph"]
        if place == "sym_int_values":
            graph[place]["metadata"] = size
        else:
            graph[place]["x"]["sizes"][0] = size

    assert_refused("a shape in it is the expression", members={MODEL: edited(members[MODEL], shape)})


def test_names_that_would_become_source_code_are_refused(
    assert_refused: Callable[..., None], members: dict[str, bytes]
) -> None:
    bad = "x=__import__('os').abort()"

    def node(document: Any) -> None:
        document["graph_module"]["graph"]["nodes"][0]["name"] = bad

    def argument(document: Any) -> None:
        document["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = [bad]

    def parameter(document: Any) -> None:
        document["graph_module"]["signature"]["input_specs"][0]["parameter"]["parameter_name"] = 'a".b("'

    def buffer(document: Any) -> None:
        specs = document["graph_module"]["signature"]["input_specs"]
        next(spec for spec in specs if "buffer" in spec)["buffer"]["buffer_name"] = "a\nb"

    for edit in (node, argument, parameter, buffer):
        assert_refused("it uses the name", members={MODEL: edited(members[MODEL], edit)})

    def weight(document: Any) -> None:
        document["config"]['head."bad"'] = document["config"].pop("head.weight")

    assert_refused("it uses the name", members={WEIGHTS: edited(members[WEIGHTS], weight)})


def test_nested_inputs_that_import_modules_are_refused(
    assert_refused: Callable[..., None], members: dict[str, bytes]
) -> None:
    enum = json.dumps([{"__enum__": True, "fqn": "antigravity:fly", "name": "a"}])
    factory = {"default_factory_module": "antigravity", "default_factory_name": "fly", "dict_context": []}
    for kind, context, message in [
        ("builtins.dict", enum, "nested in .*antigravity"),
        ("builtins.dict", json.dumps(["x): import os #"]), "nested in"),
        ("collections.defaultdict", factory, "nested in"),
        ("my_package.Output", "null", "nested in 'my_package.Output'"),
    ]:

        def nest(document: Any, kind: str = kind, context: Any = context) -> None:
            signature = document["graph_module"]["module_call_graph"][0]["signature"]
            leaf = {"type": None, "context": None, "children_spec": []}
            signature["in_spec"] = json.dumps([1, {"type": kind, "context": context, "children_spec": [leaf]}])

        assert_refused(message, members={MODEL: edited(members[MODEL], nest)})


def test_custom_objects_are_refused(assert_refused: Callable[..., None], members: dict[str, bytes]) -> None:
    def add(document: Any) -> None:
        argument = {"as_custom_obj": {"name": "obj", "class_fqn": "torch.classes.foo.Bar"}}
        document["graph_module"]["graph"]["inputs"].append(argument)

    assert_refused("it refers to custom objects", members={MODEL: edited(members[MODEL], add)})


def test_a_member_that_is_there_twice_is_refused(
    tmp_path: Path, members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two readers may disagree about which of the two counts.
    path = write(tmp_path / "evil.pt2", members)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"model/{MODEL}", members[MODEL])
    with pytest.raises(UserError, match=r"it holds 'model/models/model.json' twice"):
        Classifier(path)


def test_free_text_may_hold_anything(tmp_path: Path, members: dict[str, bytes]) -> None:
    def annotate(document: Any) -> None:
        document["graph_module"]["graph"]["nodes"][0]["metadata"]["stack_trace"] = "x = f('\"')\n"

    opened = Classifier(write(tmp_path / "good.pt2", members | {MODEL: edited(members[MODEL], annotate)}))
    assert "probabilities" in opened.gives


@pytest.mark.parametrize("length", [0, 100, 5000, -100])
def test_a_truncated_archive_is_named(tmp_path: Path, pt2_file: Path, length: int) -> None:
    path = tmp_path / "cut.pt2"
    path.write_bytes(pt2_file.read_bytes()[:length])
    # Near its end, a cut archive shows the table of the archive of sample inputs inside it.
    with pytest.raises(UserError, match=r"cut.pt2 (is not a readable torch.export archive|was not opened, because)"):
        Classifier(path)


def test_a_flipped_byte_is_noticed(tmp_path: Path, members: dict[str, bytes]) -> None:
    path = write(tmp_path / "bad.pt2", members)
    data = bytearray(path.read_bytes())
    data[data.index(members["data/weights/weight_0"])] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"bad.pt2 is not a readable torch.export archive \(Bad CRC-32"):
        Classifier(path)


def test_a_name_that_is_no_text_is_damage(tmp_path: Path, members: dict[str, bytes]) -> None:
    path = write(tmp_path / "bad.pt2", members | {"données": b""})
    path.write_bytes(path.read_bytes().replace("données".encode(), b"donn\xc3\xc3es"))
    with pytest.raises(UserError, match=r"bad.pt2 is not a readable torch.export archive \('utf-8' codec"):
        Classifier(path)
    with pytest.raises(UserError, match=r"bad.pth is not a torch checkpoint that can be read \(UnicodeDecodeError"):
        convert_checkpoint(path.rename(tmp_path / "bad.pth"), tmp_path / "out")


def test_archives_without_a_program_or_with_a_damaged_one(tmp_path: Path, members: dict[str, bytes]) -> None:
    rest = {name: data for name, data in members.items() if name != MODEL}
    with pytest.raises(UserError, match="holds no exported program"):
        Classifier(write(tmp_path / "empty.pt2", rest))
    for text in (b"{", b"[" * 100_000):
        with pytest.raises(UserError, match="is damaged: its description is not JSON"):
            Classifier(write(tmp_path / "bad.pt2", members | {MODEL: text}))
    with pytest.raises(UserError, match=r"bad.pt2 is not a torch.export program that can be run here"):
        Classifier(write(tmp_path / "bad.pt2", members | {MODEL: b"{}"}))


def test_what_sympy_and_torch_write_is_ordinary() -> None:
    for expression in (
        "Symbol('s77', positive=True, integer=True)",
        "Mul(Integer(49), FloorDiv(Symbol('s77', positive=True, integer=True), Integer(2)))",
        "Add(Pow(Symbol('u0', integer=True), Integer(2)), Integer(-1))",
        "Max(1, s0)",
    ):
        assert EXPRESSION.fullmatch(expression)
    for operator in (
        "torch.ops.aten.conv2d.default",
        "_operator.getitem",
        "torch.sym_max",
        "torch.ops.aten.add.Tensor",
    ):
        assert OPERATOR.fullmatch(operator)
