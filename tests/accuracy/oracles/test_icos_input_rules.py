from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess.accuracy.oracles.icos import InputRules, Partition
from secondguess.accuracy.oracles.icos.input_rules import EXAMPLES
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.observation import Observation

Make = Callable[..., Observation]

ROAD = """\
# what can be seen where
classes = ["bus", "car", "ship"]
column = "camera"

[[partition]]
name = "road"
values = ["north", "south"]
labels = [
  "bus",   # "ship" never comes here
  "car",
]

[[partition]]
name = "river"
ids = ["harbour/*"]
labels = ["ship"]
"""


def is_bright(images: NDArray[np.float32]) -> NDArray[np.bool_]:
    return np.asarray(images.mean(axis=(1, 2, 3)) > 0.5)


def write(folder: Path, text: str, name: str = "rules.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_rule_file_is_what_it_says(tmp_path: Path) -> None:
    rules = InputRules.load(write(tmp_path, ROAD))
    assert rules == InputRules(
        [
            Partition("road", ["bus", "car"], ["north", "south"], column="camera"),
            Partition("river", ["ship"], ids=["harbour/*"]),
        ],
        ["bus", "car", "ship"],
    )
    assert rules.allowed(["bus", "car", "ship"]).tolist() == [[True, True, False], [False, False, True]]
    as_json = write(tmp_path, json.dumps(rules.as_dict(), indent=1), "rules.json")
    assert InputRules.load(as_json) == rules
    assert InputRules.from_dict(json.loads(json.dumps(rules.as_dict()))) == rules


def test_columns_and_ids_decide_over_membership(evidence: Make, tmp_path: Path) -> None:
    rules = InputRules.load(write(tmp_path, ROAD))
    seen = evidence(
        [0, 2, 2, 0, 1, 1],
        class_names=("bus", "car", "ship"),
        ids=["a/1", "a/2", "harbour/1", "harbour/2", "a/3", "harbour/x/4"],
        columns={"camera": np.array(["north", "south", "east", "east", "", "north"])},
    )
    members = [[True, False], [True, False], [False, True], [False, True], [False, False], [True, True]]
    assert rules.members(seen.images).tolist() == members
    assert rules.violated(seen).tolist() == [-1, 0, -1, 1, -1, 1]
    assert rules.coverage(seen.images) == 5 / 6


def test_a_function_of_the_image_decides_over_membership(evidence: Make) -> None:
    seen = evidence([0, 1, 2, 0, 1, 2])
    bright = is_bright(seen.images.materialise())
    assert 0 < bright.sum() < 6
    for function in (is_bright, f"{__name__}:is_bright"):
        rules = InputRules(
            [Partition("day", [0, 1], [True], function=function), Partition("night", [2], [False], function=function)]
        )
        wanted = [
            0 if light and k == 2 else 1 if not light and k != 2 else -1
            for light, k in zip(bright, [0, 1, 2] * 2, strict=True)
        ]
        assert rules.violated(seen).tolist() == wanted
    with pytest.raises(UserError, match="uses a function object, which cannot be saved"):
        InputRules([Partition("day", [0], [True], function=is_bright)]).as_dict()


def test_a_function_that_is_not_there_or_counts_wrong_is_told(evidence: Make) -> None:
    seen = evidence([0, 1])
    with pytest.raises(UserError, match="'no_such_module:f' of the rules cannot be imported"):
        InputRules([Partition("day", [0], function="no_such_module:f")]).violated(seen)
    with pytest.raises(UserError, match="gave 1 values for 2 images"):
        InputRules([Partition("day", [0], function=lambda images: [0])]).violated(seen)


def test_labels_are_names_or_places() -> None:
    rules = InputRules([Partition("p", [1, "cat"], column="c")])
    assert rules.allowed(["cat", "dog", "fox"]).tolist() == [[True, True, False]]
    assert rules.allowed(["cat", "1", "dog"]).tolist() == [[True, True, False]]
    assert InputRules([Partition("p", [1], column="c")]).allowed(["2", "1"]).tolist() == [[False, True]]
    assert InputRules([Partition("p", np.array([1, 0]), column="c")]).partitions[0].labels == (1, 0)


def test_a_number_that_is_also_another_class_by_name_is_refused() -> None:
    digits = ["1", "2", "3", "4"]
    for label, place in ((1, 0), (3, 2), (4, 3)):
        with pytest.raises(
            UserError,
            match=f"the label {label} counts places from 0, but is also the name of the class at place {place}",
        ):
            InputRules([Partition("p", [label], column="c")]).allowed(digits)
    quoted = InputRules([Partition("p", ["1", "4"], column="c")])
    assert quoted.allowed(digits).tolist() == [[True, False, False, True]]
    assert quoted.allowed(["4", "1"]).tolist() == [[True, True]]
    with pytest.raises(UserError, match="the label '1' is unknown"):  # a text is a name, never a place
        quoted.allowed(["a", "b"])


def test_labels_are_compared_as_classes() -> None:
    def within(wide: list[str | int], narrow: list[str | int], class_names: tuple[str, ...] = ()) -> InputRules:
        parts = [Partition("all", wide, ids=["cam/*"]), Partition("one", narrow, ids=["cam/1/*"])]
        return InputRules(parts, class_names)

    within(["a"], [0], ("a", "b"))
    with pytest.raises(UserError, match="contradiction"):
        within(["a"], [1], ("a", "b"))
    with pytest.raises(UserError, match="contradiction"):
        within([0], ["b"], ("a", "b"))
    unnamed = within(["a"], [0])  # which class 0 is shows when the names are known
    unnamed.allowed(["a", "b"])
    with pytest.raises(UserError, match="contradiction"):
        unnamed.allowed(["b", "a"])
    with pytest.raises(UserError, match="the label 1 means the same class as the label 'b' before it"):
        InputRules([Partition("p", ["b", 1], column="c")]).allowed(["a", "b"])


@pytest.mark.parametrize("name", ["rules.toml", "rules.json"])
def test_a_byte_order_mark_is_no_mistake(tmp_path: Path, name: str) -> None:
    plain = InputRules.load(write(tmp_path, ROAD))
    text = ROAD if name.endswith("toml") else json.dumps(plain.as_dict())
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert InputRules.load(tmp_path / name) == plain


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            '"car",\n',
            '"carr",\n',
            r"line 10: in the partition 'road', the label 'carr' is unknown; did you mean 'car'\?$",
        ),
        (
            '["ship"]',
            '["ship", "plane"]',
            "line 16: in the partition 'river', the label 'plane' is unknown; known",
        ),
        ('["ship"]', "[3]", "line 16: in the partition 'river', the label 3 is unknown"),
        ('labels = ["ship"]', "labels = []", "line 16: the partition 'river' is empty: no label is allowed"),
        ('["harbour/*"]', "[]", "line 15: the partition 'river' is empty: ids lists nothing"),
        ('["ship"]', "[true]", "line 16: in the partition 'river', the label True is neither a name nor"),
        (
            'labels = ["ship"]',
            'labels = "ship"',
            "line 16: in the partition 'river', labels must be a list, not 'ship'",
        ),
        ('labels = ["ship"]', "", "line 13: the partition 'river' has no labels"),
        (
            'labels = ["ship"]',
            'label = ["ship"]',
            "line 16: the partition 'river' has an unknown entry 'label'; did you",
        ),
        ('name = "river"', 'name = "road"', "line 14: two partitions are called 'road'"),
        ('name = "river"', "", "line 13: the partition 2 has no name"),
        ('name = "river"', "name = 7", "line 14: in the partition 7, name must be a text, not 7"),
        (
            'ids = ["harbour/*"]',
            'values = [\n  "west",\n  "south",\n]',
            "line 17: contradiction: 'south' of the column 'camera' is in the partition 'river', which allows the "
            "labels ship, and in the partition 'road', which allows bus, car",
        ),
        ('ids = ["harbour/*"]', 'column = "camera"\nids = ["x"]', "line 13: the partition 'river' has column and ids;"),
        ('column = "camera"', "", "line 5: the partition 'road' has neither a column, nor a function, nor ids"),
        ('column = "camera"', 'columm = "camera"', "line 3: 'columm' is not known here"),
        ('column = "camera"', "column = 3", "line 3: column must be a text, not 3"),
        ('column = "camera"', 'column = ["a"]', r"line 3: column must be a text, not \['a'\]"),
        ('column = "camera"', "function = 3", "line 3: function must be a text, not 3"),
        (
            '["harbour/*"]',
            "[\n 'a/*',\n 2]",
            "line 17: in the partition 'river', the id 2 is no text; patterns stand in",
        ),
        (
            '["ship"]',
            '["ship", 2]',
            "line 16: in the partition 'river', the label 2 means the same class as the label 'ship'",
        ),
        ('["bus", "car", "ship"]', "true", "line 2: classes must be a list of names or their number"),
        ('["ship"]', '["ship', "this is not TOML"),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in ROAD
    path = write(tmp_path, ROAD.replace(old, new))
    with pytest.raises(UserError, match=complaint) as caught:
        InputRules.load(path)
    assert str(caught.value).startswith(str(path))


def test_mistakes_in_json_are_told_with_their_line(tmp_path: Path) -> None:
    good = {
        "column": "camera",
        "partition": [{"name": "road", "labels": ["bus", 1]}, {"name": "river", "labels": ["a, [b]", "ship"]}],
    }
    path = write(tmp_path, json.dumps(good, indent=1), "rules.json")
    lines = path.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if '"ship"' in text)
    with pytest.raises(
        UserError, match=f"rules.json, line {line}: in the partition 'river', the label 'ship' is unknown"
    ):
        InputRules.load(path, ["bus", "car", "a, [b]"])
    with pytest.raises(UserError, match=r"line 1: this is not JSON"):
        InputRules.load(write(tmp_path, "{,}", "bad.json"))
    with pytest.raises(UserError, match="a rule file is a table"):
        InputRules.load(write(tmp_path, "[]", "list.json"))


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no rule file at"):
        InputRules.load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read as text"):
        InputRules.load(tmp_path / "bytes.toml")
    with pytest.raises(UserError, match="line 1: there are no partitions"):
        InputRules.load(write(tmp_path, "classes = 3"))
    inline = 'column = "c"\n\npartition = [{name = "a", labels = ["x"]}, {name = "a", labels = ["y"]}]'
    with pytest.raises(UserError, match="line 3: two partitions are called 'a'"):
        InputRules.load(write(tmp_path, inline))


def test_the_classes_of_the_classifier_are_the_ones_that_count(tmp_path: Path) -> None:
    path = write(tmp_path, ROAD)
    with pytest.raises(UserError, match="line 2: these 3 classes are not the 2 of the classifier"):
        InputRules.load(path, ["bus", "car"])
    counted = write(tmp_path, ROAD.replace('["bus", "car", "ship"]', "3"))
    assert InputRules.load(counted, ["bus", "car", "ship"]).class_names == ("bus", "car", "ship")
    with pytest.raises(UserError, match="the label 'bus' is unknown; known are 0, 1, 2"):
        InputRules.load(counted)


def test_rules_made_in_python_are_checked_too() -> None:
    with pytest.raises(UserError, match="These rules cannot be used: there are no partitions"):
        InputRules([])
    with pytest.raises(UserError, match="the label 'x' is unknown"):
        InputRules([Partition("p", ["x"], column="c")], ["y"])
    with pytest.raises(UserError, match="labels must be a list, not the text 'cat'"):
        Partition("p", "cat", column="c")
    with pytest.raises(UserError, match="contradiction: 'cam/1/\\*' of the ids"):
        InputRules([Partition("all", ["x"], ids=["cam/*"]), Partition("one", ["y"], ids=["cam/1/*"])])
    InputRules([Partition("all", ["x", "y"], ids=["cam/*"]), Partition("one", ["y"], ids=["cam/1/*"])])


def test_images_without_the_column_or_ids_are_refused(evidence: Make) -> None:
    with pytest.raises(
        UserError, match=r"use the column 'camera', which the set 'images' does not have .its columns: n"
    ):
        InputRules([Partition("p", [0], column="camera")]).violated(evidence([0]))
    with pytest.raises(UserError, match="use the ids of the images"):
        InputRules([Partition("p", [0], ids=["*"])]).violated(evidence([0]))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_put_every_class_into_one_partition(path: Path) -> None:
    rules = InputRules.example(path.stem)
    assert (rules.allowed(rules.class_names).sum(axis=0) == 1).all()
    assert len(rules.class_names) == (100 if "100" in path.stem else 10)
    if path.stem.endswith("_equal"):
        assert len(rules.partitions) == 2
        half = len(rules.class_names) // 2
        assert rules.partitions[0].labels == tuple(range(half))


def test_the_examples_are_the_papers() -> None:
    labels = [partition.labels for partition in InputRules.example("mnist_fine").partitions]
    assert labels == [(0, 3, 6, 8, 9), (1, 4, 7), (2, 5)]
    assert [len(one.labels) for one in InputRules.example("cifar100_fine").partitions] == [10, 15, 20, 15, 10, 15, 15]
    with pytest.raises(UserError, match="no example rules called 'mnist'; there are: cifar100_equal"):
        InputRules.example("mnist")


def test_simulated_partitions_follow_the_true_labels(evidence: Make) -> None:
    labels = list(range(10)) * 2
    predictions = [(k + shift) % 10 for shift, k in enumerate(labels)]
    seen = evidence(predictions, labels, classes=10)
    rules = InputRules.example("mnist_fine")
    simulated = seen.replace(images=rules.simulate(seen.images))
    group = {label: k for k, one in enumerate(rules.partitions) for label in one.labels}
    wanted = [group[t] if group[t] != group[p] else -1 for t, p in zip(labels, predictions, strict=True)]
    assert rules.violated(simulated).tolist() == wanted


def test_partitions_that_cannot_be_simulated(evidence: Make) -> None:
    images: ImageSet = evidence([0, 1], [0, 1]).images
    with pytest.raises(UserError, match="every class is in exactly one of them"):
        InputRules([Partition("p", [0], column="c")]).simulate(images)
    rules = InputRules([Partition("p", [0, 1, 2], column="c")])
    with pytest.raises(UserError, match="has unknown ones"):
        rules.simulate(replace(images, labels=np.array([0, -1])))
