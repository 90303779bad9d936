"""What a broker was started with, as the configs that topics fall back to. Pure."""

from kraftpy.config import SETTINGS, Settings
from kraftpy.describe.configs import StaticConfigs


def static_configs(settings: Settings) -> StaticConfigs:
    """Every setting that is not at its default, as text, by its key."""
    found = []
    for setting in SETTINGS:
        value = getattr(settings, setting.attribute)
        if value is not None and value != setting.default:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found.append((setting.key, text))
    return tuple(found)
