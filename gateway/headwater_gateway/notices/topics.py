"""The topics on which the gateway speaks to watchers: SITE/w/g/..., which no board can write."""

from __future__ import annotations

from urllib.parse import quote, unquote

TO = "w"  # in the place of a host's name: whoever watches


def root(site: str) -> str:
    return "%s/%s/g/" % (site, TO)


def heartbeat(site: str) -> str:
    return root(site) + "heartbeat"


def notices(site: str) -> str:
    return root(site) + "notices"


def state(site: str, alarm: str) -> str:
    """Of one alarm that is on: the retained message."""
    return root(site) + "on/" + quote(alarm)


def states(site: str) -> str:
    """All of these, as a subscription."""
    return root(site) + "on/#"


def alarm_of(site: str, topic: str) -> str | None:
    """The id of the alarm whose state a topic carries."""
    head = root(site) + "on/"
    return unquote(topic[len(head) :]) if topic.startswith(head) else None
