"""YAML that stands for nothing but itself: the loader in C follows levels without a limit, and an alias can repeat anything."""

from __future__ import annotations


def first_other(text: str | bytes, most_levels: int) -> tuple[str, int] | None:
    """What the first alias or level too many is, and its line; None if there is neither. YAMLError for what is no YAML."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > most_levels or isinstance(event, yaml.AliasEvent):
            what = "an alias" if isinstance(event, yaml.AliasEvent) else f"more than {most_levels} levels"
            return what, event.start_mark.line + 1 if event.start_mark else 1
    return None
