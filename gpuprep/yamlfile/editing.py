"""One value of a YAML file of the user is changed, and all the rest of it, comments too, stays letter by letter."""

from __future__ import annotations

import yaml


def with_member(text: str, name: str, value: str) -> str:
    """`text`, a mapping that reader.py found no problem in, with `name: value` in it: changed, or new on a last line.

    Of a form that no line can be put into, nonsense comes out: read the result before it is kept.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    newline = "\r\n" if "\r\n" in text else "\n"
    end, indent = len(text), ""
    if isinstance(root, yaml.MappingNode):
        members = root.value
        for key, node in members:
            if key.value == name:
                return text[: node.start_mark.index] + value + text[node.end_mark.index :]
        if root.flow_style:
            inside = root.start_mark.index + 1
            return f"{text[:inside]}{name}: {value}, {text[inside:]}"
        # Not where the mapping ends: for PyYAML that is behind the comments that follow it.
        last = members[-1][1]
        while last.value and not isinstance(last, yaml.ScalarNode) and not last.flow_style:
            last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
        end = text.find("\n", last.end_mark.index) + 1 or len(text)
        indent = " " * root.start_mark.column
    begun = newline if text[:end] and not text[:end].endswith("\n") else ""
    return f"{text[:end]}{begun}{indent}{name}: {value}{newline}{text[end:]}"
