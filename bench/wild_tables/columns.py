"""Columns of wild tables: their types, values at the edges of each, and SQL that draws them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

FLOATS = ("'NaN'", "'Infinity'", "'-Infinity'", "'-0.0'", "'0.0'", "'1.5'", "'-3.25'", "'1e-40'")
TEXTS = (
    "''", "'a'", "' '", "'null'", "'a/b=c%&?#'", "'x\\ny'", "repeat('x', 40)", "repeat('é', 20)",
    "repeat('😀', 20)", "decode(X'EFBFBFEFBFBFEFBFBFEFBFBF', 'UTF-8')",
    "repeat(decode(X'F48FBFBF', 'UTF-8'), 18)", "repeat(decode(X'ED9FBF', 'UTF-8'), 17)",
    "'__HIVE_DEFAULT_PARTITION__'", "concat(repeat('x', 15), decode(X'F48FBFBF', 'UTF-8'), 'z')",
    "concat('long ', repeat('ab', 3000))",
)  # fmt: skip
BYTES = (
    "X''", "X'00'", "X'FF'", "X'FFFF'", "unhex(repeat('FF', 20))", "unhex(repeat('00', 20))",
    "X'61'", "unhex(concat(repeat('7F', 15), repeat('FF', 5)))",
)  # fmt: skip
DATES = ("0001-01-01", "1582-10-10", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31")
TIMES = (
    "1900-01-01 00:00:00", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00",
    "2024-02-29 12:34:56.123456", "2024-03-01 00:00:00", "2200-12-31 23:00:00",
)  # fmt: skip
UUIDS = (
    "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    "'80000000-0000-0000-8000-000000000000'", "'7fffffff-ffff-ffff-7fff-ffffffffffff'",
)  # fmt: skip
PLAIN = (
    "boolean", "int", "bigint", "float", "double", "decimal", "date", "timestamp", "timestamp_ntz",
    "string", "binary",
)  # fmt: skip
BY_JAVA = ("uuid", "fixed")
"""Types that Spark's SQL does not name."""


@dataclass
class Column:
    """One column."""

    name: str
    """Its name, or the path of a member of a struct."""
    kind: str
    """Its type in Spark's SQL, or one of BY_JAVA."""
    required: bool = False
    """Whether it is NOT NULL."""
    pool: list[str] = field(default_factory=list)
    """Literals of a column with few values."""
    salt: int = 0
    """Makes its values independent of others'."""

    @property
    def sql(self) -> str:
        return ".".join(f"`{part}`" for part in self.name.split("|"))

    def value(self) -> str:
        """SQL over `id` of the value in a row."""
        return _value(self.kind, self.pool, self.salt, 0 if self.required else 1)


def column(chance: random.Random, name: str, kind: str = "") -> Column:
    kind = kind or drawn_type(chance)
    made = Column(name, kind, salt=chance.randint(0, 1 << 30))
    made.pool = pool_of(chance, kind)
    return made


def drawn_type(chance: random.Random, depth: int = 0) -> str:
    """A type in Spark's SQL."""
    nested = ("struct", "array", "map") if depth < 2 else ()
    kind = chance.choice((*PLAIN, *PLAIN, *nested))
    if kind == "decimal":
        digits = chance.choice((1, 5, 9, 10, 18, 19, 28, 38))
        return f"decimal({digits},{chance.randint(0, digits)})"
    if kind == "struct":
        inside = (f"f{n}:{drawn_type(chance, depth + 1)}" for n in range(chance.randint(1, 3)))
        return f"struct<{','.join(inside)}>"
    if kind == "array":
        return f"array<{drawn_type(chance, depth + 1)}>"
    if kind == "map":
        key = chance.choice(("int", "string", "date", "bigint"))
        return f"map<{key},{drawn_type(chance, depth + 1)}>"
    return kind


def is_plain(kind: str) -> bool:
    return not kind.startswith(("struct", "array", "map"))


def literals(chance: random.Random, kind: str) -> list[str]:
    """SQL of values at the edges of a type, as of that type."""
    if kind.startswith("decimal"):
        digits, scale = (int(part) for part in kind[8:-1].split(","))
        most = 10**digits - 1
        some = (0, 1, -1, most, -most, chance.randint(-most, most), 127, -128, 128, 255, 256)
        texts = [_decimal(one, scale) for one in some if abs(one) <= most]
        return [f"cast('{one}' as {kind})" for one in texts]
    if kind in ("int", "bigint"):
        most = 2**31 - 1 if kind == "int" else 2**63 - 1
        some = (0, -1, 1, most, -most, chance.randint(-most, most), chance.randint(0, 9))
        return [f"cast('{one}' as {kind})" for one in some]
    return {
        "boolean": ["true", "false"],
        "float": [f"cast({one} as float)" for one in FLOATS],
        "double": [f"cast({one} as double)" for one in FLOATS],
        "date": [f"date'{one}'" for one in DATES],
        "timestamp": [f"timestamp'{one}'" for one in TIMES],
        "timestamp_ntz": [f"timestamp_ntz'{one}'" for one in TIMES],
        "string": list(TEXTS),
        "binary": list(BYTES),
        "uuid": list(UUIDS),
        "fixed": ["X'000000'", "X'FFFFFF'", "X'80FF7F'"],
    }[kind]


def _decimal(unscaled: int, scale: int) -> str:
    sign, digits = "-" * (unscaled < 0), str(abs(unscaled)).rjust(scale + 1, "0")
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


def pool_of(chance: random.Random, kind: str) -> list[str]:
    if not is_plain(kind):
        return []
    some = literals(chance, kind)
    return chance.sample(some, chance.randint(1, len(some)))


def _value(kind: str, pool: list[str], salt: int, nulls: int) -> str:
    """SQL of a value; a fifth of them are NULL where `nulls` is 1."""
    if kind.startswith("struct"):
        inside = (
            f"'{name}', {_value(part, [], salt + n + 1, nulls)}"
            for n, (name, part) in enumerate(members(kind))
        )
        made = f"named_struct({', '.join(inside)})"
    elif kind.startswith("array"):
        one = _value(kind[6:-1], [], salt + 1, nulls)
        two = _value(kind[6:-1], [], salt + 2, nulls)
        made = f"slice(array({one}, {two}), 1, {_draw(salt + 3, 3)})"
    elif kind.startswith("map"):
        key, _, held = kind[4:-1].partition(",")
        made = f"map({_value(key, [], salt + 1, 0)}, {_value(held, [], salt + 2, nulls)})"
    else:
        chosen = pool or literals(random.Random(salt), kind)
        made = f"element_at(array({', '.join(chosen)}), 1 + {_draw(salt, len(chosen))})"
        spread = {"int": "cast(id as int)", "bigint": "id * 1000003", "string": "concat('v', id)",
                  "date": "date_add(date'2024-01-01', cast(id % 500 as int))"}  # fmt: skip
        if kind in spread and salt % 3 == 0:
            made = f"if({_draw(salt + 5, 10)} < 8, {spread[kind]}, {made})"
        if kind in ("int", "bigint", "uuid", "fixed") or kind.startswith(("decimal", "float")):
            made = f"cast({made} as { {'uuid': 'string', 'fixed': 'binary'}.get(kind, kind) })"
    return f"if({_draw(salt + 7, 5)} = 0, null, {made})" if nulls else made


def _draw(salt: int, many: int) -> str:
    return f"cast(pmod(xxhash64(id, {salt}), {many}) as int)"


def members(kind: str) -> list[tuple[str, str]]:
    """Name and type of each member of a struct."""
    parts, depth, start = [], 0, 7
    for at, letter in enumerate(kind[:-1]):
        if at < start:
            continue
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(kind[start:at])
            start = at + 1
    parts.append(kind[start:-1])
    return [(one.partition(":")[0], one.partition(":")[2]) for one in parts]


def leaves(columns: list[Column]) -> list[Column]:
    """The plain columns, members of structs among them."""
    found = []
    for one in columns:
        if is_plain(one.kind):
            found.append(one)
        elif one.kind.startswith("struct"):
            inside = [Column(f"{one.name}|{name}", kind) for name, kind in members(one.kind)]
            found += leaves(inside)
    return found
