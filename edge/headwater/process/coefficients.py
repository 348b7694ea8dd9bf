"""Coefficients for Fir, in units of 1/4096 (its default shift, 12). Host side: a plan holds the numbers.

BANDPASS  5 to 20 Hz at 360 samples a second, 31 taps, delay 15 samples: before Qrs
LOWPASS   40 Hz at 360 samples a second, 4th order (5 taps), delay 2 samples: noise of the mains
"""

BANDPASS = (
    -123, -128, -137, -150, -162, -168, -163, -139, -94, -28, 54, 146, 235, 310, 359, 376,
    359, 310, 235, 146, 54, -28, -94, -139, -163, -168, -162, -150, -137, -128, -123,
)  # fmt: skip
LOWPASS = (110, 966, 1944, 966, 110)
