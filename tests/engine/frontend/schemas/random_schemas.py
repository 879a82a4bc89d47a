"""Random schemas of every keyword that a strict schema may have, and values that fit them more often than not."""

from __future__ import annotations

import re
from random import Random
from typing import Any

PATTERNS = (
    *(
        "^[a-z]+$",
        '^[^"]{1,3}$',
        r"^[^\\/]*$",
        r"^\d{2}$",
        "^(ab|c)*$",
        "[0-9]",
        "^[A-Za-z.-]+$",
        "^[^ -/]{0,2}$",
        "^a.c$",
    ),
    *("^x|y$", r'^[^\x20"\\]+$'),
)
NAME_PATTERNS = ("^x", "^[0-9]+$", '^[^"]z$', "_t$")
FORMATS = ("date", "date-time", "email", "ipv4", "ipv6", "uuid", "duration", "hostname", "uri")
NAMES = ("a", "b", "c", "d e", "é", 'x"y', "k\\", "n\nl", "")
DEFINITIONS = ("A", "Größe", "List<int>", "A B", "A[B]", "t/x~", "100%")
TEXTS = (
    *(
        "",
        "a",
        "b",
        "ab",
        "abc",
        "c",
        "x",
        "y",
        "12",
        "99",
        "0",
        "a1",
        "x/",
        "q\\r",
        'a"',
        "é",
        "☃",
        "abab",
        "a.c",
        "aac",
    ),
    *(
        "   ",
        "!",
        "zz",
        "ABC",
        "_",
        "a b",
        "\t",
        "f@x.yz",
        "2024-02-29",
        "12:30:00Z",
        "2024-02-29T12:30:00Z",
        "1.2.3.4",
    ),
    *(
        "::1",
        "123e4567-e89b-12d3-a456-426614174000",
        "P1D",
        "example.com",
        "http://a.b/c",
        "a\\",
        '"',
        "\\",
        "\n",
        "x1",
    ),
)
NUMBERS = (0, 1, 2, 3, 5, 10, -5, 12, 15, 30, 60, 100, -10, 1_000_000)
Schema = dict[str, Any]


class SchemaMaker:
    """Random schemas from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._definitions: Schema = {}

    def schema(self) -> Schema:
        self._definitions = {}
        made = self._object(0) if self.random.random() < 0.6 else self._any(0)
        return {**made, "$defs": self._definitions} if self._definitions else made

    def _any(self, depth: int) -> Schema:
        share = self.random.random()
        if depth < 3 and share < 0.28:
            return self._object(depth)
        if depth < 3 and share < 0.40:
            return self._array(depth)
        if depth < 3 and share < 0.48:
            union = self.random.choice(["anyOf", "anyOf", "oneOf"])
            return {union: [self._any(depth + 1) for _ in range(self.random.randint(1, 3))]}
        if depth < 3 and share < 0.54:
            return self._all_of(depth)
        if share < 0.60:
            return self._reference(depth)
        if share < 0.68:
            return {"enum": [self._value(2) for _ in range(self.random.randint(1, 4))]}
        if share < 0.72:
            return {"const": self._value(2)}
        if share < 0.83:
            return self._number()
        if share < 0.95:
            return self._text()
        return {"type": self.random.sample(["string", "integer", "null", "boolean", "array", "object", "number"], 2)}

    def _number(self) -> Schema:
        random, node = self.random, dict[str, Any](type=self.random.choice(["integer", "number"]))
        if random.random() < 0.5:
            node[random.choice(["minimum", "exclusiveMinimum"])] = random.choice([-5, 0, 1, 2.5, -0.5, 10])
        if random.random() < 0.5:
            node[random.choice(["maximum", "exclusiveMaximum"])] = random.choice([11, 12.5, 100, 1e7, 20])
        if random.random() < 0.3:
            node["multipleOf"] = random.choice([2, 3, 5, 0.5, 10])
        return node

    def _text(self) -> Schema:
        random, node = self.random, dict[str, Any](type="string")
        if random.random() < 0.3:
            return {**node, "format": random.choice(FORMATS)}
        if random.random() < 0.5:
            node["pattern"] = random.choice(PATTERNS)
        if random.random() < 0.4:
            node["minLength"] = random.randint(0, 3)
        if random.random() < 0.4:
            node["maxLength"] = random.randint(2, 5)
        return node

    def _array(self, depth: int) -> Schema:
        random, node = self.random, dict[str, Any](type="array")
        if random.random() < 0.4:
            node["prefixItems"] = [self._any(depth + 1) for _ in range(random.randint(1, 2))]
        if random.random() < 0.7:
            node["items"] = random.choice([False, self._any(depth + 1), self._any(depth + 1)])
        if random.random() < 0.2:
            node["additionalItems"] = False
        if random.random() < 0.4:
            node["minItems"] = random.randint(0, 2)
        if random.random() < 0.5:
            node["maxItems"] = random.randint(2, 4)
        return self._shuffled(node)

    def _object(self, depth: int) -> Schema:
        random, node = self.random, dict[str, Any](type="object")
        names = random.sample(NAMES, random.randint(0, 3))
        if names:
            node["properties"] = {name: self._any(depth + 1) for name in names}
        if random.random() < 0.3:
            node["patternProperties"] = {random.choice(NAME_PATTERNS): self._any(depth + 1)}
        required = [name for name in names if random.random() < 0.6] + (["zz"] if random.random() < 0.1 else [])
        if required:
            node["required"] = required
        if random.random() < 0.7:
            node["additionalProperties"] = random.choice([False, False, False, self._any(depth + 1)])
        if random.random() < 0.1:
            node["minProperties"] = random.randint(0, 3)
        if random.random() < 0.1:
            node["maxProperties"] = random.randint(1, 3)
        if random.random() < 0.12:
            node["anyOf"] = [{"required": [name]} for name in names or ["a"]]
        return self._shuffled(node)

    def _all_of(self, depth: int) -> Schema:
        kind = self.random.randrange(4)
        if kind < 2:
            return {"allOf": [self._number() if kind else self._text() for _ in range(2)]}
        return {"allOf": [self._object(depth) if kind == 2 else self._array(depth) for _ in range(2)]}

    def _reference(self, depth: int) -> Schema:
        name = self.random.choice(DEFINITIONS)
        if self._definitions.get(name) == {}:  # it is being made, and the validator follows no circles
            return {"type": "null"}
        if name not in self._definitions:
            self._definitions[name] = {}
            self._definitions[name] = self._any(max(depth, 1) + 1)
        return {"$ref": "#/$defs/" + name.replace("~", "~0").replace("/", "~1").replace("100%", "100%25")}

    def _shuffled(self, node: Schema) -> Schema:
        members = list(node.items())
        if self.random.random() < 0.5:
            self.random.shuffle(members)
        return dict(members)

    def _value(self, depth: int) -> Any:
        share = self.random.random()
        if depth and share < 0.15:
            return [self._value(depth - 1) for _ in range(self.random.randint(0, 2))]
        if depth and share < 0.3:
            return {self.random.choice(NAMES): self._value(depth - 1) for _ in range(self.random.randint(0, 2))}
        return self.random.choice([None, True, False, 0, 1, -3, 2.5, 1e-3, "", "a", "é☃", '\n"\\', "abc", "/x"])


class NoValueError(Exception):
    """The maker found no value."""


class ValueMaker:
    """Random values that follow most of a schema, with names in the order in which an answer has them."""

    def __init__(self, schema: Schema, random: Random) -> None:
        self._root, self._random = schema, random

    def value(self, node: Any = None, depth: int = 0) -> Any:
        node = self._root if node is None else node
        random = self._random
        if node is False or depth > 8:
            raise NoValueError
        if not node or node is True:
            return random.choice([1, "a", None, [], {}])
        if "$ref" in node:
            name = node["$ref"][8:].replace("~1", "/").replace("~0", "~").replace("100%25", "100%")
            return self.value(self._root["$defs"][name], depth + 1)
        if "enum" in node:
            return random.choice(node["enum"])
        if "const" in node:
            return node["const"]
        for union in ("anyOf", "oneOf"):
            if union in node and "type" not in node:
                return self.value(random.choice(node[union]), depth + 1)
        if "allOf" in node:
            return self._merged([self.value(part, depth + 1) for part in node["allOf"]])
        kind = random.choice(node["type"]) if isinstance(node["type"], list) else node["type"]
        match kind:
            case "integer":
                return random.choice(NUMBERS)
            case "number":
                return random.choice([*NUMBERS, 0.5, 2.5, -0.5, 12.5, 99.5])
            case "string":
                return random.choice(TEXTS)
            case "array":
                return self._array(node, depth)
            case "object":
                return self._object(node, depth)
        return None if kind == "null" else random.random() < 0.5

    def _merged(self, values: list[Any]) -> Any:
        if not all(isinstance(value, dict) for value in values):
            return self._random.choice(values)
        return values[0] | {name: value for name, value in values[1].items() if name not in values[0]}

    def _array(self, node: Schema, depth: int) -> list[Any]:
        first, made = node.get("prefixItems", []), []
        for place in range(self._random.randint(node.get("minItems", 0), node.get("maxItems", 3))):
            try:
                made.append(self.value(first[place] if place < len(first) else node.get("items", True), depth + 1))
            except NoValueError:
                break
        return made

    def _object(self, node: Schema, depth: int) -> Schema:
        random, made, required = self._random, Schema(), node.get("required", [])
        for name, child in node.get("properties", {}).items():
            if name in required or random.random() < 0.5:
                made[name] = self.value(child, depth + 1)
        for name in required:
            if name not in made:
                made[name] = self.value(self._schema_of(node, name), depth + 1)
        for name in random.sample(["x", "x2", "12", "az", "q_t", "\\z", "new", "ü"], 2):
            if random.random() < 0.4 and name not in made:
                made[name] = self.value(self._schema_of(node, name), depth + 1)
        return made

    def _schema_of(self, node: Schema, name: str) -> Any:
        for pattern, child in node.get("patternProperties", {}).items():
            if re.search(pattern, name):
                return child
        return node.get("additionalProperties", True)
