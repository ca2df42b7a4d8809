"""Other values of a field of a JSON file."""

ABSENT = object()
ACTIVATIONS = ("gelu", "relu", "gelu_new", "silu")


def mutations(field, value):
    """Other values of a field."""
    if isinstance(value, bool):
        values = [not value, "yes"]
    elif isinstance(value, int):
        values = [value + 1, value - 1, 2 * value, 0, str(value)]
    elif isinstance(value, float):
        values = [2 * value + 0.05, 0.0, str(value)]
    elif isinstance(value, str):
        values = [name for name in ACTIVATIONS if name != value] if "act" in field else ["other"]
    elif isinstance(value, list):
        values = [value[:-1], [*value, *value[-1:]], value[::-1]]
    elif isinstance(value, dict):
        values = [{**value, name: changed} for name in value for changed in (mutations(name, value[name]))]
        values = [{name: entry for name, entry in mutant.items() if entry is not ABSENT} for mutant in values]
    else:
        values = [True, 1, 5, 0.5]
    return [ABSENT, *([] if value is None else [None]), *(mutant for mutant in values if repr(mutant) != repr(value))]
