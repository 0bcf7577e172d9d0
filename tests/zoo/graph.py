# SPDX-License-Identifier: Apache-2.0
"""The graph of an archive as its model.json has it, without torch: its nodes, what they depend on, their
arguments in words."""

import collections
import json
import re
import zipfile

DTYPES = {1: "u8", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "f16", 7: "f32", 8: "f64", 9: "c32", 10: "c64",
          11: "c128", 12: "bool", 13: "bf16", 28: "u16"}
SHAPE_ONLY = re.compile(r"\b(new_\w+|\w+_like|sym_\w+|_assert\w*|expand_as|type_as|size)\b")
RANDOM = re.compile(r"\b(rand\w*|bernoulli\w*|dropout\w*|normal_|uniform_|exponential_|multinomial)\b")


def read(path):
    """The graph, with the signature and names of weights beside it."""
    with zipfile.ZipFile(path) as z:
        name = next(n for n in z.namelist() if n.endswith("/models/model.json"))
        module = json.loads(z.read(name))["graph_module"]
    g = module["graph"]
    origin = {}
    for spec in module["signature"]["input_specs"]:
        (kind, value), = spec.items()
        arg = value["arg"]
        arg = next(iter(arg.values())) if kind == "user_input" else arg
        if isinstance(arg, dict) and "name" in arg:
            origin[arg["name"]] = {"user_input": "input", "tensor_constant": "constant"}.get(kind, kind)
    return {"nodes": g["nodes"], "tensors": g["tensor_values"], "origin": origin,
            "ints": g.get("sym_int_values", {})}


def tensors_of(value):
    """Names of the tensors in an argument or output."""
    if not isinstance(value, dict):
        return []
    found = []
    for key, inner in value.items():
        if key == "as_tensor":
            found.append(inner["name"])
        elif key in ("as_tensors", "as_optional_tensors"):
            for t in inner:
                t = t.get("as_tensor", t) if isinstance(t, dict) else t
                if isinstance(t, dict) and "name" in t:
                    found.append(t["name"])
        elif key == "as_optional_tensor":
            found += tensors_of(inner)
    return found


def dependent(program):
    """Names of the values that depend on an input, a parameter or a draw; a buffer is a constant, unless
    a node writes to it."""
    live = {n for n, o in program["origin"].items() if o in ("input", "parameter")}
    alias = {}
    for node in program["nodes"]:
        target = node["target"].rsplit("ops.", 1)[-1]
        args = [t for a in node["inputs"] for t in tensors_of(a["arg"])]
        outs = [t for o in node["outputs"] for t in tensors_of(o)]
        word = target.split(".")[1] if "." in target else target
        depends = [] if SHAPE_ONLY.fullmatch(word) else args
        if word in ("type_as", "expand_as"):
            depends = args[:1]
        alive = bool(RANDOM.fullmatch(word)) or any(a in live for a in depends)
        if word.endswith("_") and not word.endswith("__") and args:
            base = args[0]
            while base in alias:
                base = alias[base]
            alias.update({o: base for o in outs})
            if alive:
                live.update((args[0], base))
        elif args and word in ("view", "select", "slice", "expand", "transpose", "unsqueeze", "squeeze", "alias",
                               "detach", "permute", "t", "lift_fresh_copy"):
            alias.update({o: args[0] for o in outs})
        if alive:
            live.update(outs)
    return live


def nodes(program):
    """Each node that has a tensor, and whether it is a constant."""
    live = dependent(program)
    for node in program["nodes"]:
        outs = [t for o in node["outputs"] for t in tensors_of(o)]
        if outs:
            yield dict(node, target=node["target"].replace("torch.ops.", "")), not any(o in live for o in outs)


def count_targets(program):
    """Counters of the targets that depend on something, and of the constant ones."""
    live, constant = collections.Counter(), collections.Counter()
    for node, is_constant in nodes(program):
        (constant if is_constant else live)[node["target"]] += 1
    return live, constant


def words_of_size(size):
    if "as_int" in size:
        return str(size["as_int"])
    text = size["as_expr"]["expr_str"]
    symbol = re.fullmatch(r"Symbol\('\w+',?.*?\)", text)
    times = re.fullmatch(r"Mul\(Integer\((\d+)\), Symbol\(.*?\)\)", text)
    return "B" if symbol else times.group(1) + "B" if times else text


def words_of_tensor(program, name):
    value = program["tensors"].get(name)
    origin = program["origin"].get(name, "value")
    if not value:
        return origin
    return "%s %s %s" % (origin, DTYPES.get(value["dtype"], value["dtype"]),
                         "batched %d-d" % len(value["sizes"]) if any("as_expr" in s for s in value["sizes"])
                         else "%d-d" % len(value["sizes"]))


def words_of(program, value):
    (kind, inner), = value.items()
    if kind == "as_none":
        return "None"
    if kind == "as_tensor":
        return words_of_tensor(program, inner["name"])
    if kind in ("as_tensors", "as_optional_tensors"):
        return "%s of %d" % (kind, len(inner))
    if kind == "as_optional_tensor":
        return "optional " + words_of(program, inner)
    if kind == "as_sym_int":
        return "sym_int" if "as_name" in inner else str(inner.get("as_int"))
    if kind in ("as_ints", "as_sym_ints", "as_bools", "as_floats"):
        return str([("B" if "as_name" in i else i.get("as_int")) if isinstance(i, dict) else i for i in inner])
    if kind == "as_scalar_type":
        return "dtype " + DTYPES.get(inner, str(inner))
    if kind == "as_float":
        return "%g" % inner if not isinstance(inner, str) else inner
    return "%s %s" % (kind[3:], json.dumps(inner)) if kind not in ("as_int", "as_bool") else str(inner)


def arguments(program, node):
    """Pairs of an argument's name and what it is."""
    for a in node["inputs"]:
        yield a["name"], words_of(program, a["arg"])
