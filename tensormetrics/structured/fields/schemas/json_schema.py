"""Reader of JSON Schemas (drafts 7 to 2020-12) as schema trees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....core.arguments import checks
from ...comparators.annotations import KEYWORD, annotations_of_keywords
from ...types.class_tree import annotate
from ...types.tree import Anything, Field, FreeKeys, ItemList, Leaf, Record, Reference, Schema, Type, Union, tuple_of
from .json_writer import SCALARS as WRITTEN

FORMATS = {part["format"]: kind for kind, part in WRITTEN.items() if "format" in part}
SCALARS = {part["type"]: kind for kind, part in WRITTEN.items() if [*part] == ["type"] and kind != "null"}
TYPES = (*SCALARS, "null", "object", "array")
OF_OBJECTS = ("properties", "required", "additionalProperties")
OF_ARRAYS = ("items", "prefixItems", "uniqueItems", "additionalItems")
OF_SCALARS = ("format", "contentEncoding")
IMPLIED = {"object": OF_OBJECTS, "array": OF_ARRAYS, "string": OF_SCALARS}  # types by keywords
CHOICES = ("anyOf", "oneOf", "allOf")
STRUCTURE = ("type", "enum", "const", *CHOICES, "$ref", *OF_OBJECTS, *OF_ARRAYS, *OF_SCALARS)
READ_AND_NOT_CHECKED = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"),
    *("minItems", "maxItems", "minProperties", "maxProperties", "title", "description", "default", "examples"),
    *("discriminator", "propertyNames", "deprecated", "readOnly", "writeOnly", "$id", "$schema", "$comment"),
    *("$defs", "definitions", "$anchor"),
)
KNOWN = (*STRUCTURE, "nullable", KEYWORD, *READ_AND_NOT_CHECKED)


def read_json_schema(document: Any) -> Schema:
    """Build the schema tree of a JSON Schema.

    Args:
        document: The schema as `json.loads` returns it.

    Raises:
        ValueError: If it has an unsupported keyword, an unresolved reference, or an invalid value of a keyword; the
            message has the path.
    """
    reader = _Reader(document)
    root = reader.type(document, "schema")
    return Schema(root, reader.definitions)


@dataclass
class _Reader:
    document: Any
    definitions: dict[str, Type] = field(default_factory=dict)

    def type(self, schema: Any, path: str) -> Type:
        if schema is True:
            return Anything()
        if not isinstance(schema, Mapping):
            raise ValueError(f"{path}: got {schema!r:.60}, wanted an object that describes a type")
        for key in schema:
            if key not in KNOWN:
                raise ValueError(f"{path}: got {key!r}, which is not supported; {_remedy(key)}")
        node = self._node(schema, path)
        if schema.get("nullable") is True:
            node = replace(node, nullable=True)
        annotations = annotations_of_keywords(schema.get(KEYWORD, {}), f"{path}.{KEYWORD}")
        return annotate(node, annotations, path)

    def _node(self, schema: Mapping[str, Any], path: str) -> Type:
        for key in ("$ref", *CHOICES):
            if key in schema:
                if others := [other for other in STRUCTURE if other in schema and other not in (key, "type")]:
                    raise ValueError(f"{path}: got {others[0]!r} and {key!r}, wanted one of them")
                return self._reference(schema[key], path) if key == "$ref" else self._choice(key, schema[key], path)
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else _check_array(schema["enum"], f"{path}.enum")
            members = tuple(value for value in values if value is not None)
            return Leaf("enum", members, nullable=None in values)
        implied = (name for name, keys in IMPLIED.items() if any(key in schema for key in keys))
        kinds = schema.get("type", next(implied, None))
        if kinds is None:
            return Anything()
        names = [kinds] if isinstance(kinds, str) else _check_array(kinds, f"{path}.type")
        for name in names:
            if name not in TYPES:
                raise ValueError(f"{path}.type: got {name!r:.60}, wanted one of {', '.join(TYPES)}")
        cases = [self._one_type(schema, name, path) for name in names if name != "null"]
        return _union(cases, "null" in names)

    def _one_type(self, schema: Mapping[str, Any], name: str, path: str) -> Type:
        if name == "object":
            return self._object(schema, path)
        if name == "array":
            return self._array(schema, path)
        format_name = schema.get("format")
        if name == "string" and schema.get("contentEncoding") == "base64":
            return Leaf("bytes", base64=True)
        if name == "string" and format_name in FORMATS or name == "number" and format_name == "decimal":
            return Leaf(FORMATS[format_name])
        return Leaf(SCALARS[name])

    def _object(self, schema: Mapping[str, Any], path: str) -> Type:
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        if not isinstance(properties, Mapping):
            raise ValueError(f"{path}.properties: got {properties!r:.60}, wanted an object of types by key")
        if not properties and rest is not False:
            return FreeKeys(self.type(rest, f"{path}.additionalProperties"))
        required = _check_array(schema.get("required", []), f"{path}.required")
        fields = tuple(
            Field(name, self.type(part, f"{path}.properties.{name}"), required=name in required)
            for name, part in properties.items()
        )
        is_free = rest is not True and rest is not False and rest != {}
        extra = self.type(rest, f"{path}.additionalProperties") if is_free else None
        return Record(fields, closed=rest is False, extra=extra)

    def _array(self, schema: Mapping[str, Any], path: str) -> Type:
        items, prefix = schema.get("items", True), schema.get("prefixItems")
        if isinstance(items, Sequence) and not isinstance(items, str):
            items, prefix = schema.get("additionalItems", False), items  # of draft 7
        if prefix is not None:
            if items not in (True, False):
                raise ValueError(
                    f"{path}: got types of items beyond {len(prefix)} positions, which is not supported; "
                    "write false, or one type of all items"
                )
            parts = _check_array(prefix, f"{path}.prefixItems")
            return tuple_of(self.type(part, f"{path}.prefixItems[{n}]") for n, part in enumerate(parts))
        return ItemList(self.type(items, f"{path}.items"), unique=schema.get("uniqueItems") is True)

    def _choice(self, key: str, cases: Any, path: str) -> Type:
        cases = _check_array(cases, f"{path}.{key}")
        if key == "allOf" and len(cases) > 1:
            raise ValueError(
                f"{path}: got 'allOf' of {len(cases)}, which is not supported; write one type that has all"
            )
        nodes = [self.type(case, f"{path}.{key}[{n}]") for n, case in enumerate(cases) if not _is_null(case)]
        return _union(nodes, any(map(_is_null, cases)))

    def _reference(self, target: Any, path: str) -> Reference:
        if not isinstance(target, str) or not target.startswith("#"):
            raise ValueError(f"{path}.$ref: got {target!r:.60}, wanted a local reference such as '#/$defs/name'")
        if target not in self.definitions:
            part = self.document
            for name in target[1:].strip("/").split("/") if target.strip("#/") else ():
                name = name.replace("~1", "/").replace("~0", "~")
                if not isinstance(part, Mapping) or name not in part:
                    raise ValueError(f"{path}.$ref: got {target!r:.60}, which is not defined in this schema")
                part = part[name]
            self.definitions[target] = Anything()  # until it is read
            self.definitions[target] = self.type(part, f"schema{target[1:].replace('/', '.')}")
        return Reference(target)


def _union(cases: Sequence[Type], nullable: bool) -> Type:
    """Build one type of several cases; a nested union is replaced by its cases."""
    flat: list[Type] = []
    for case in cases:
        if isinstance(case, Union):
            flat += case.cases
        else:
            flat.append(case)
        nullable = nullable or case.nullable and not isinstance(case, Anything)
    if not flat:
        return Leaf("null", nullable=True)
    if len(flat) == 1:
        return replace(cases[0], nullable=nullable or cases[0].nullable)
    return Union(tuple(flat), nullable=nullable)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _check_array(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{path}: got {value!r:.60}, wanted an array")
    return list(value)


def _remedy(key: str) -> str:
    if key == "patternProperties":
        return "write additionalProperties, or give a class"
    return checks.perhaps(key, KNOWN).removeprefix("; ") or "leave it out, or give a class"
