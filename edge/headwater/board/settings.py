# The configuration of a board: one JSON file. Every key is listed here, with its type and its default
# (None: the file must give it).

import json

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_KEYS: "dict[str, tuple[Any, Any]]" = {
    "site": (str, "hw"),  # first word of every topic
    "name": (str, None),  # of this board, as plans name it
    "key": (str, "board.key"),  # file with the 32 bytes of the board's key
    "broker": (dict, None),  # the next table; {}: no network, Bluetooth alone
    "bluetooth": (dict, {}),  # the last table
    "wifi": (dict, {}),  # ssid, password
    "sensors": (dict, {}),  # source of a plan -> driver (its name) and what that driver needs, like pin
    "actuators": (dict, {}),  # "buzzer" or "led", as alarms of a plan name them -> pin and what else it needs
    "flash": (str, "log"),  # partition that holds the log
    "battery": (dict, {}),  # pin, and millivolts at the battery for each at the pin: ratio
    # What this kind of board draws, and the charge of its battery, as `hw provision` writes it:
    # plan/profile_reader.py.
    "energy": (dict, {}),
    "mtu": (int, 512),  # most bytes of a frame
    "status_s": (int, 5),  # how often the board reports its status
    "watchdog_s": (int, 30),  # a program that hangs for this long is restarted; 0: never
    "sleep_s": (int, 0),  # sleep this long when everything is safe; 0: never
    "awake_s": (int, 20),  # and after this long in any case
    "issued": (int, 0),  # seconds since 1970 when this file was made: the clock is later than that
}
_BROKER: "dict[str, tuple[Any, Any]]" = {
    "host": (str, None),  # an address; a name is looked up, and everything waits for that
    "port": (int, 8883),
    "tls": (bool, True),
    "ca": (str, "ca.der"),  # file with the certificate that signed the broker's
    "name": (str, ""),  # in the broker's certificate, if it is not `host`
    "cert": (str, ""),  # files with a certificate of the board and its key, or else
    "cert_key": (str, ""),
    "user": (str, ""),  # a user name (empty: that of the board)
    "password": (str, ""),  # and a password
    "keepalive_s": (int, 20),
    "retry_s_max": (int, 30),  # longest pause before the link is tried again
}
_BLUETOOTH: "dict[str, tuple[Any, Any]]" = {
    "enabled": (bool, False),
    "key": (str, "bluetooth.key"),  # file with the 32 bytes by which hosts of the site know each other
    "encryption": (str, "required"),  # of frames, from end to end: nothing else is accepted
    "pairing": (bool, False),  # answer to LE Secure Connections too; not on every chip, see docs/boards.md
}


class SettingsError(ValueError):
    pass


# The configuration in the file at `path`, complete.
def load(path: str) -> "dict[str, Any]":
    try:
        with open(path) as f:
            found = json.load(f)
    except (OSError, ValueError) as e:
        raise SettingsError("%s cannot be read as JSON: %s" % (path, e))
    out = _check(path, found, _KEYS)
    out["bluetooth"] = _check(path + ", bluetooth", out["bluetooth"], _BLUETOOTH)
    if out["bluetooth"]["encryption"] != "required":
        raise SettingsError(
            "%s: bluetooth: encryption is '%s': it can only be required"
            % (path, out["bluetooth"]["encryption"])
        )
    if out["broker"] or not out["bluetooth"]["enabled"]:
        out["broker"] = _check(path + ", broker", out["broker"], _BROKER)
    name = out["name"]
    if not name or len(name) > 32 or name in ("g", "s", "gateway"):
        raise SettingsError("%s: name '%s': give 1 to 32 letters, not g, s or gateway" % (path, name))
    if not 512 <= out["mtu"] <= 16384:
        raise SettingsError("%s: mtu %d: give 512 to 16384" % (path, out["mtu"]))
    for source in out["sensors"]:
        s = out["sensors"][source]
        if not isinstance(s, dict) or not isinstance(s.get("driver"), str):
            raise SettingsError("%s: sensor '%s' names no driver" % (path, source))
    for name in out["actuators"]:
        if not isinstance(out["actuators"][name], dict):
            raise SettingsError(
                "%s: actuator '%s' has no settings: give an object, like {\"pin\": 4}" % (path, name)
            )
    if out["energy"]:
        from ..plan import profile_reader

        try:
            profile_reader.read(out["energy"])
        except profile_reader.ProfileError as e:
            raise SettingsError("%s: %s" % (path, e))
    return out


def _check(where: str, found: "Any", keys: "dict[str, tuple[Any, Any]]") -> "dict[str, Any]":
    if not isinstance(found, dict):
        raise SettingsError('%s: give an object with keys, like {"name": "chest"}' % where)
    for key in sorted(found):
        if key not in keys:
            raise SettingsError("%s: unknown key '%s': there are %s" % (where, key, ", ".join(sorted(keys))))
    out = {}
    for key in keys:
        kind, default = keys[key]
        value = found.get(key, default)
        if value is None:
            raise SettingsError("%s: '%s' is missing" % (where, key))
        if not isinstance(value, kind) or kind is int and (isinstance(value, bool) or value < 0):
            raise SettingsError("%s: '%s' is %r: give a %s" % (where, key, value, kind.__name__))
        out[key] = value
    return out
