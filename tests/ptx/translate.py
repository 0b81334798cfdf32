"""nvcc's PTX as C++: of every kernel a function that runs one CUDA thread, on a stack of its own (see card.h).

Registers are integers that hold bits. `add.s64 %rd1, %rd2, -8;` becomes `rd1 = op_add<s64>(rd2, -8);`: what an opcode
does is said in card.h, and one that is not there does not compile.
"""

import re

TYPES = {f"{kind}{bits}" for kind in "busf" for bits in (8, 16, 32, 64)} | {"pred"}
BYTES = {name: int(name[1:]) // 8 for name in TYPES - {"pred"}}
PLAIN = {"rn", "global", "param", "local", "uni", "v2", "v4"}  # say nothing that card.h must know
SPECIAL = {
    "%tid.x": "threadIdx.x",
    "%ctaid.x": "blockIdx.x",
    "%ntid.x": "launch.threads",
    "%nctaid.x": "launch.blocks",
}

ENTRY = re.compile(r"\.visible \.entry (\w+)\((.*?)\)(.*?)\n\{(.*?)\n\}", re.DOTALL)
PARAMETER = re.compile(r"\.param (?:\.align (\d+) )?\.(\w+) (\w+)(?:\[(\d+)\])?")
REGISTERS = re.compile(r"\.reg \.(\w+)\s+%(\w+)<(\d+)>")
ARRAY = re.compile(r"\.(shared|local) \.align (\d+) \.b8 (\w+)\[(\d+)\]")
INSTRUCTION = re.compile(r"(?:@(!?)%(p\d+)\s+)?([a-z][\w.]*)\s*(.*)", re.DOTALL)


def translated(ptx: str) -> str:
    ptx = re.sub(r"//[^\n]*", "", ptx)
    shared = set(re.findall(r"\.extern \.shared .*? (\w+)\[\]", ptx))
    common = [match[0] for match in ARRAY.finditer(ENTRY.sub("", ptx))]  # arrays that several kernels declare at once
    kernels = [kernel(*entry, shared, common) for entry in ENTRY.findall(ptx)]
    rows, functions = zip(*kernels, strict=True)
    table = "static const std::vector<Kernel> kKernels = {\n" + ",\n".join(rows) + "};"
    return "\n".join(['#include "card.h"', *functions, table, '#include "cudart.h"', ""])


def kernel(
    name: str, parameters: str, directives: str, body: str, shared: set[str], common: list[str]
) -> tuple[str, str]:
    """Its row of the table, and its function."""
    body = "\n".join([f"{array};" for array in common if ARRAY.fullmatch(array)[3] in body] + [body])
    places, end = [], 0
    for align, kind, symbol, count in PARAMETER.findall(parameters):
        size = BYTES[kind] * int(count or 1)
        places.append((symbol, up(end, int(align or BYTES[kind])), size))
        end = places[-1][1] + size
    lines = [f"const uint64_t {symbol} = launch.parameters + {place};" for symbol, place, _ in places]
    for kind, prefix, count in REGISTERS.findall(body):
        names = ", ".join(f"{prefix}{n} = 0" for n in range(1, int(count)))
        lines.append(f"{register(kind)} {names};" if names else "")
    lines.append("uint64_t tmp = 0; uint32_t temp = 0;")  # of nvcc's own small scopes
    fixed = 0
    for space, align, symbol, size in ARRAY.findall(body):
        if space == "shared":
            fixed = up(fixed, int(align))
            lines.append(f"const uint64_t {symbol} = {fixed};")
            fixed += int(size)
        else:
            lines.append(f"alignas({align}) char at_{symbol}[{size}]; const uint64_t {symbol} = uint64_t(at_{symbol});")
    lines += [f"const uint64_t {symbol} = {up(fixed, 16)};" for symbol in shared]
    code, sizes = counted(statements(body))
    lines.append(f"uint32_t* const entered = launch.entered + threadIdx.x * {len(sizes)};")
    function = "\n  ".join([f"static void k_{name}(const Launch& launch) {{", *lines, *code]) + "\n}"
    most = re.search(r"\.maxntid (\d+)", directives)
    layout = ", ".join(f"{{{place}, {size}}}" for _, place, size in places)
    threads, sizes = most[1] if most else 1024, ", ".join(map(str, sizes))
    row = f'  {{"{name}", k_{name}, {{{layout}}}, {end}, {up(fixed, 16)}, {threads}, {{{sizes}}}}}'
    return row, function


def counted(lines: list[str]) -> tuple[list[str], list[int]]:
    """Statements that also count how often a thread enters each basic block, and the instructions of each block."""
    code, sizes, begins = [], [], True
    for line in lines:
        if line.endswith(": ;"):
            begins = True
        else:
            if begins:
                code.append(f"++entered[{len(sizes)}];")
                sizes.append(0)
            sizes[-1] += 1
            begins = "goto " in line or "return;" in line
        code.append(line)
    return code, sizes


def statements(body: str) -> list[str]:
    body = re.sub(r"(?<![\w%])\.(reg|shared|local|loc|pragma)\b[^;\n]*;?", "", body)
    body = re.sub(r"([;:])", r"\1\n", body).replace("{ \n", "").replace("%tmp; }", "%tmp;")
    lines = []
    for line in (raw.strip().rstrip(";") for raw in body.split("\n")):
        if line.endswith(":"):
            lines.append(line.replace("$", "_") + " ;")
        elif line.strip("{} "):
            lines.append(statement(line))
    return lines


def statement(line: str) -> str:
    negated, guard, opcode, operands = INSTRUCTION.fullmatch(line).groups()
    parts, operands = opcode.split("."), split(operands)
    types = [part.upper() for part in parts if part in TYPES]
    name = "_".join(part for part in parts if part not in TYPES | PLAIN)
    values = [operand(x) for x in operands]
    vector = 4 if "v4" in parts else 2 if "v2" in parts else 1
    call = f"op_{name}" + (f"<{', '.join(types)}>" if types else "")
    if name == "bra":
        text = f"goto {operands[0].replace('$', '_')};"
    elif name == "ret":
        text = "return;"
    elif parts[0] == "st":
        halves = unpacked(operands[1])
        text = f"const uint64_t at = {values[0]}; " + " ".join(
            f"{call[:-1]}, {vector}>(at, {n}, {x});" for n, x in enumerate(halves)
        )
    elif parts[0] == "ld":
        text = f"const uint64_t at = {values[1]}; " + " ".join(
            f"{x} = {call[:-1]}, {vector}>(at, {n});" for n, x in enumerate(unpacked(operands[0]))
        )
    elif parts[0] == "bar":
        text = f"{call}({', '.join(values)});"
    elif name == "mov" and operands[0].startswith("{"):
        low, high = unpacked(operands[0])
        text = f"const uint64_t x = {values[1]}; {low} = op_low<{types[0]}>(x); {high} = op_high<{types[0]}>(x);"
    elif name == "mov" and operands[1].startswith("{"):
        text = f"{values[0]} = op_pack<{types[0]}>({', '.join(unpacked(operands[1]))});"
    else:
        target, _, valid = operands[0].partition("|")
        also = f" {operand(valid)} = true;" if valid else ""
        text = f"{operand(target)} = {call}({', '.join(values[1:])});{also}"
    return (f"if ({'!' if negated else ''}{guard}) " if guard else "") + f"{{ {text} }}"


def split(operands: str) -> list[str]:
    return [x.strip() for x in re.findall(r"\{[^}]*\}|[^\s{,][^,]*", operands)]


def unpacked(operands: str) -> list[str]:
    return [operand(x) for x in operands.strip("{}").split(",")]


def operand(text: str) -> str:
    text = text.strip()
    if text.startswith("["):
        base, _, offset = text[1:-1].partition("+")
        return operand(base) + (f" + {operand(offset)}" if offset else "")
    if text[:2] in ("0f", "0F", "0d", "0D"):
        return f"0x{text[2:]}ull"
    if re.fullmatch(r"-?\d+", text):
        return text if abs(int(text)) < 2**31 else f"int64_t({int(text) % 2**64}ull)"
    return SPECIAL.get(text, text.removeprefix("%"))


def register(kind: str) -> str:
    return "bool" if kind == "pred" else f"uint{kind[1:]}_t"


def up(size: int, align: int) -> int:
    return -(-size // align) * align
