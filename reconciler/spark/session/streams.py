"""Work over many Java objects inside the JVM: method handles in chains, over streams.

A call of py4j takes 50 microseconds or more; a chain of handles runs without any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.spark.session import iceberg

OBJECT = "java.lang.Object"
STRING = "java.lang.String"
LONG = "java.lang.Long"
STREAM = "java.util.stream.Stream"
PREDICATE = "java.util.function.Predicate"
FUNCTION = "java.util.function.Function"
UNIT = "\x1f"
"""Between the values of one line."""
DIGITS = 8
"""Number of hexadecimal digits of the number in front of a text."""


def chain(spark: Any, first: Any, *more: Any) -> Any:
    """Return a MethodHandle that passes what each handle returns to the next one."""
    handles = spark._jvm.java.lang.invoke.MethodHandles
    for following in more:
        taken = following.type().changeParameterType(0, first.type().returnType())
        first = handles.filterReturnValue(first, following.asType(taken))
    return first


def spread(spark: Any, owner: str, handle: Any, *getters: Any) -> Any:
    """Return (item) -> handle(getter(item), ...); owner: the class of the items."""
    jvm = spark._jvm
    handles, kind = jvm.java.lang.invoke.MethodHandles, handle.type()
    taken = [
        getter.asType(
            iceberg.method_type(spark, OBJECT, owner).changeReturnType(kind.parameterType(i))
        )
        for i, getter in enumerate(getters)
    ]
    filters = iceberg.java_array(spark, "java.lang.invoke.MethodHandle", taken)
    order = spark.gateway.new_array(jvm.int, len(taken))  # the item, every time
    returned = iceberg.method_type(spark, OBJECT, owner).changeReturnType(kind.returnType())
    return handles.permuteArguments(handles.filterArguments(handle, 0, filters), returned, order)


def row(spark: Any, owner: str, *getters: Any) -> Any:
    """Return (item) -> the texts of what the getters return, with UNIT between them."""
    texts = "java.lang.CharSequence"
    array = iceberg.java_array(spark, texts, []).getClass()
    join = spark._jvm.java.lang.invoke.MethodHandles.publicLookup().findStatic(
        iceberg.java_class(spark, STRING),
        "join",
        iceberg.method_type(spark, STRING, texts, texts).changeParameterType(1, array),
    )
    joined = given(spark, join, 0, UNIT).asCollector(array, len(getters))
    return spread(spark, owner, joined, *(chain(spark, one, text(spark)) for one in getters))


def given(spark: Any, handle: Any, position: int, *values: Any) -> Any:
    """Return the handle with these arguments fixed, from the position on."""
    fixed = iceberg.java_array(spark, OBJECT, values)
    return spark._jvm.java.lang.invoke.MethodHandles.insertArguments(handle, position, fixed)


def text(spark: Any) -> Any:
    """Return Object -> its text."""
    return iceberg.static_method(spark, STRING, "valueOf", STRING, OBJECT)


def contained(spark: Any, texts: Iterable[str]) -> Any:
    """Return Object -> whether it is one of the texts."""
    wanted = iceberg.java_set(spark, texts)
    return iceberg.method(spark, "java.util.Set", "contains", "boolean", OBJECT).bindTo(wanted)


def numbers(spark: Any, of: Mapping[str, int]) -> Any:
    """Return a java.util.Map from each text to its number, as a text in hexadecimal."""
    lines = (f"{number:0{DIGITS}x}{text}" for text, number in of.items())
    collectors = spark._jvm.java.util.stream.Collectors
    to_map = collectors.toMap(_substring(spark, DIGITS), _substring(spark, 0, DIGITS))
    return iceberg.java_lines(spark, lines).collect(to_map)


def _substring(spark: Any, *places: int) -> Any:
    """Return String.substring with these arguments as a function."""
    method = iceberg.method(
        spark, "java.lang.String", "substring", "java.lang.String", *("int" for _ in places)
    )
    given = iceberg.java_array(spark, "java.lang.Object", places)
    bound = spark._jvm.java.lang.invoke.MethodHandles.insertArguments(method, 1, given)
    return iceberg.as_lambda(spark, FUNCTION, bound)


def lines(spark: Any, items: Any, handle: Any, *, distinct: bool = False) -> list[str]:
    """Return one text per item of a java.util.Collection, in its order; or each text once."""
    if items.isEmpty():
        return []
    function = iceberg.as_lambda(spark, FUNCTION, chain(spark, handle, text(spark)))
    stream = items.stream().map(function)
    joining = spark._jvm.java.util.stream.Collectors.joining("\n")
    return str((stream.distinct() if distinct else stream).collect(joining)).split("\n")


def kept(spark: Any, items: Any, predicate: Any) -> Any:
    """Return a java.util.List of the items for which the handle returns true."""
    collectors = spark._jvm.java.util.stream.Collectors
    test = iceberg.as_lambda(spark, PREDICATE, predicate)
    return items.stream().filter(test).collect(collectors.toList())


def mapped(spark: Any, items: Any, handle: Any) -> Any:
    """Return a java.util.List of what the handle returns for each item."""
    collectors = spark._jvm.java.util.stream.Collectors
    return (
        items.stream().map(iceberg.as_lambda(spark, FUNCTION, handle)).collect(collectors.toList())
    )


def to_map(spark: Any, items: Any, key: Any, value: Any) -> Any:
    """Return a java.util.Map of what two handles return for each item. Of items with one key it
    holds the first, so that it is shorter than they are."""
    functions = [iceberg.as_lambda(spark, FUNCTION, handle) for handle in (key, value)]
    handles, kind = spark._jvm.java.lang.invoke.MethodHandles, iceberg.java_class(spark, OBJECT)
    first = handles.dropArguments(handles.identity(kind), 1, iceberg.java_list(spark, [kind]))
    keep = iceberg.as_lambda(spark, "java.util.function.BinaryOperator", first)
    return items.stream().collect(spark._jvm.java.util.stream.Collectors.toMap(*functions, keep))


def any_of(spark: Any, stream: Any, element: Any) -> Any:
    """Return a handle: whether `element` is true for one item of the stream that `stream`
    returns."""
    matches = iceberg.method(spark, STREAM, "anyMatch", "boolean", PREDICATE)
    return chain(
        spark, stream, given(spark, matches, 1, iceberg.as_lambda(spark, PREDICATE, element))
    )
