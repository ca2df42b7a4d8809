"""Options as frozen dataclasses: types and unions of fields, dotted names and values, and JSON that others wrote."""
