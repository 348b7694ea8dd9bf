"""Beats: Fir(BANDPASS) >> Qrs on five minutes of a real electrocardiogram with premature ventricular
beats, judged by NeuroKit2's detector on the unfiltered signal."""

from __future__ import annotations

import warnings
from array import array
from functools import cache

import pytest
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.operators.qrs import Qrs
from headwater.process.coefficients import BANDPASS
from headwater.testing import trial
from headwater_tools.bench.support.plain_qrs import PlainQrs
from headwater_tools.environment import ROOT

pytestmark = pytest.mark.slow

HZ = 360
BEAT = "back_us:u32 rr_us:u32 amp:u16"
TOLERANCE = HZ // 10  # 100 ms
SAMPLES = array("h", (ROOT / "tests/data/ecg208-360hz.i16").read_bytes())


def detect(
    samples: array[int], size: int, params: dict[str, int] | None = None
) -> list[tuple[int, int, int]]:
    """(R peak in samples, interval in us, amplitude) of every beat."""
    fir = trial.make("Fir", {"coeffs": list(BANDPASS)}, ("mV:i16",), size)
    qrs = trial.make("Qrs", params or {}, ("mV:i16",), size)
    x = Batch(fir.ins[0], size)
    x.dt = 1_000_000 // HZ
    beats = []
    for start in range(0, len(samples), size):
        n = min(size, len(samples) - start)
        x.cols[0][:n] = samples[start : start + n]
        fir.run(x, n)
        for j in range(qrs.run(fir.y, n)):
            back_us, rr_us, amp = qrs.y.row(j)
            beats.append((start + qrs.y.at[j] - round(back_us * HZ / 1_000_000), rr_us, amp))
    return beats


@cache
def judged() -> list[int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import neurokit2

        cleaned = neurokit2.ecg_clean(SAMPLES, sampling_rate=HZ)
        _, found = neurokit2.ecg_peaks(cleaned, sampling_rate=HZ)
    return [int(peak) for peak in found["ECG_R_Peaks"]]


def agreement(ours: list[int], theirs: list[int]) -> tuple[float, float]:
    """Sensitivity and positive predictive value; each beat is matched once."""
    i = j = both = 0
    while i < len(ours) and j < len(theirs):
        if abs(ours[i] - theirs[j]) <= TOLERANCE:
            both, i, j = both + 1, i + 1, j + 1
        elif ours[i] < theirs[j]:
            i += 1
        else:
            j += 1
    return both / len(theirs), both / len(ours)


def test_a_detector_that_misses_or_invents_beats_is_told_so() -> None:
    assert agreement([100, 200, 300], [100, 200, 300, 400]) == (0.75, 1.0)
    assert agreement([100, 150, 200], [100, 237]) == (0.5, 1 / 3)


def test_beats_agree_with_an_established_detector_within_100_ms() -> None:
    sensitivity, predictive = agreement([peak for peak, _, _ in detect(SAMPLES, 60)], judged())
    assert len(judged()) == 503
    assert sensitivity >= 0.98
    assert predictive >= 0.98


def test_beats_do_not_depend_on_how_the_stream_is_cut() -> None:
    part = SAMPLES[: 30 * HZ]
    assert detect(part, 7) == detect(part, 360) == detect(part, 60) == detect(part, 1)


@pytest.mark.parametrize("scale", [0.25, 4.0])
def test_detection_adapts_to_the_height_of_the_signal(scale: float) -> None:
    scaled = array("h", [int((v - 1024) * scale) for v in SAMPLES])
    sensitivity, predictive = agreement([peak for peak, _, _ in detect(scaled, 360)], judged())
    assert sensitivity >= 0.98
    assert predictive >= 0.98


def test_intervals_are_the_distances_of_the_peaks() -> None:
    beats = detect(SAMPLES, 60)
    assert beats[0][1] == 0
    for (before, _, _), (peak, rr_us, _) in zip(beats, beats[1:]):
        assert abs((peak - before) * 1_000_000 / HZ - rr_us) <= 1_000_000 / HZ


def test_a_flat_line_has_no_beats_and_the_first_one_behind_it_is_found() -> None:
    flat = array("h", [1024] * (20 * HZ))
    beats = detect(SAMPLES[: 10 * HZ] + flat + SAMPLES[: 20 * HZ], 60)
    inside = [peak for peak, _, _ in beats if 10.2 * HZ < peak < 30 * HZ]
    behind = [peak for peak, _, _ in beats if peak >= 30 * HZ]
    again = [peak - 30 * HZ for peak in behind]
    assert inside == []
    assert agreement(again, [p for p in judged() if p < 19.5 * HZ])[0] >= 0.95


def test_filter_and_detector_together_keep_at_most_250_bytes_of_state() -> None:
    fir = trial.make("Fir", {"coeffs": list(BANDPASS)}, ("mV:i16",))
    qrs = trial.make("Qrs", {}, ("mV:i16",))
    assert (fir.state_size(), qrs.state_size()) == (61, 84)


def test_a_hole_makes_the_next_interval_unknown() -> None:
    qrs = trial.make("Qrs", {}, ("mV:i16",))
    pulse = [900, 1800, 900] + [0] * 297
    row = [(0, i * 2778, (v,)) for i, v in enumerate(pulse * 8)]
    hole = (0, 1200 * 2778, None)
    known = trial.run(qrs, row[:1200])[0]
    behind = trial.run(qrs, [hole] + row[1200:])[0][1:]
    assert [r[1] for _, r in known] == [0, 833333]  # two went by while it learned
    assert [r[1] for _, r in behind] == [0, 833333, 833333, 833333]


@pytest.mark.parametrize("size", [1, 7, 36, 360])
def test_blocks_in_a_loop_of_their_own_change_nothing(size: int) -> None:
    x = Batch(trial.make("Qrs", {}, ("mV:i16",)).ins[0], size)
    both = [kind({}, (x.alphabet,), (Alphabet(BEAT),), size) for kind in (Qrs, PlainQrs)]
    for start in range(0, 30 * HZ, size):
        part = SAMPLES[start : start + size]
        x.cols[0][: len(part)] = part
        states = []
        for op in both:
            m = op.run(x, len(part))
            state = bytearray(op.state_size())
            op.snapshot(state, 0)
            states.append((m, [op.y.row(j) for j in range(m)], list(op.y.at[:m]), state))
        assert states[0] == states[1]
