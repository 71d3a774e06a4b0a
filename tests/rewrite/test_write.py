"""Files are the same bytes whichever of Arrow's types holds their decimals."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from reconciler.rewrite import arrow
from reconciler.rewrite.columns import Column
from reconciler.rewrite.task import FileProperties
from reconciler.rewrite.write import writing

ROWS = 3_000


@pytest.mark.parametrize("few", [True, False], ids=["few values", "many values"])
def test_decimals_in_64_bits_are_written_as_those_in_128(tmp_path: Path, few: bool) -> None:
    random = np.random.default_rng(7)
    for digits in range(1, 20):
        most = 10 ** min(digits, 18) - 1
        drawn = random.integers(-most, most, ROWS, endpoint=True)
        drawn = drawn[random.integers(0, 20, ROWS)] if few else drawn
        values = [
            None if gone else Decimal(int(one)).scaleb(-1)
            for one, gone in zip(drawn, random.random(ROWS) < 0.1, strict=True)
        ]
        values[:2] = [Decimal(most).scaleb(-1), Decimal(-most).scaleb(-1)]
        column = pa.chunked_array([pa.array(values, pa.decimal128(digits, 1))])
        narrow = arrow.narrowed(column)
        assert narrow.type == (pa.decimal64(digits, 1) if digits <= 18 else column.type)
        of = (Column(1, "d", f"decimal({digits}, 1)"),)
        for name, held in (("wide", column), ("narrow", narrow)):
            with writing(tmp_path / name, of, FileProperties(blooms={"d": (99, 0.01)})) as file:
                file.write(pa.table({"d": held}))
        assert (tmp_path / "wide").read_bytes() == (tmp_path / "narrow").read_bytes()
