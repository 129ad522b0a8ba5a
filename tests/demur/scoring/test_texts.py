"""scoring/texts.py: a column of texts, or the lines of a file."""

from pathlib import Path

import pandas as pd
import pytest

from demur.scoring.errors import ScoringError
from demur.scoring.job import score_file
from demur.service.inference.predictor import Predictor
from tests.support.bundles import TEXT_SPEC, tokenizer_json, write_linear

TEXTS = ["The film was good, really", "the film", "bad"]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    path = tmp_path_factory.mktemp("texts") / "bundle"
    return Predictor.load(write_linear(path, outputs=3, spec=TEXT_SPEC, tokenizer=tokenizer_json()).path, threads=1)


def scored(predictor: Predictor, path: Path, out: Path, **options: object) -> pd.DataFrame:
    score_file(predictor, path, out, batch_size=2, **options)  # type: ignore[arg-type]
    return pd.read_json(out, lines=True)


@pytest.mark.parametrize("name", ["table.csv", "table.parquet", "lines.txt", "alone.csv"])
def test_texts_of_a_file(predictor: Predictor, tmp_path: Path, name: str) -> None:
    path, out = tmp_path / name, tmp_path / "out.jsonl"
    frame = pd.DataFrame({"number": [7, 8, 9], "text": TEXTS})
    options: dict[str, object] = {}
    if name == "table.csv":
        frame.to_csv(path, index=False)
        options = {"keep": ["number"]}
    elif name == "table.parquet":
        frame.to_parquet(path)
        options = {"keep": ["number"]}
    elif name == "lines.txt":
        path.write_text("\n".join(TEXTS) + "\n")
    else:
        frame[["text"]].to_csv(path, index=False, header=False)
        options = {"csv_header": False}
    found = scored(predictor, path, out, **options)
    assert found["score"].tolist() == pytest.approx(predictor.predict(TEXTS).score.tolist(), rel=1e-4)
    if options.get("keep"):
        assert found["number"].astype(int).tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "review,label\ngood,1\n", "found the columns review, label, expected one called 'text'"),
        ("a.csv", "good film\nbad film\n", "give --no-header"),
        ("a.txt", "", "found no text, expected one a line"),
        ("a.txt", "a" * 100_001 + "\n", r"row 0 \(line 1\): found 100001 characters"),
    ],
)
def test_files_that_are_refused(predictor: Predictor, tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ScoringError, match=words):
        scored(predictor, tmp_path / name, tmp_path / "out.jsonl")


def test_an_empty_line_is_a_row(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good\n\nbad\n")
    assert len(scored(predictor, tmp_path / "a.txt", tmp_path / "out.jsonl")) == 3


def test_what_is_cut_is_told(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join([*TEXTS, TEXTS[0]]))
    said: list[str] = []
    score_file(predictor, tmp_path / "a.txt", tmp_path / "out.jsonl", batch_size=2, warn=said.append)
    assert said == [f"{tmp_path / 'a.txt'}: 2 texts have more than the 4 tokens that the network takes: cut"]


def test_a_missing_text_is_named(predictor: Predictor, tmp_path: Path) -> None:
    pd.DataFrame({"text": ["good", "bad", None]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ScoringError, match="row 2: found None, expected a text"):
        scored(predictor, tmp_path / "a.parquet", tmp_path / "out.jsonl")


def test_lines_are_for_texts_alone(table: Predictor, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good\n")
    with pytest.raises(ScoringError, match=r"found the suffix '\.txt', expected \.npy, \.csv"):
        scored(table, tmp_path / "a.txt", tmp_path / "out.jsonl")
