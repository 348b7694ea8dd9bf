"""The commands that do their worst to boards with Bluetooth, for a short time."""

from __future__ import annotations

import json

import pytest
from hw_command import hw

pytestmark = [pytest.mark.bluetooth, pytest.mark.slow]
